package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"godwit/agent"
	"godwit/agent/leftover"
	"godwit/lab"
	"godwit/lab/image"
	"godwit/netstate"
	"godwit/vm/qemu"
)

// finding is one thing that the doctor looked at.
type finding struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Text string `json:"text"` // what was found, and what to do where it is not well
}

func newDoctor() *cobra.Command {
	var clean bool
	var config string
	c := &cobra.Command{
		Use: "doctor", Short: "say what this machine has, lacks, and has left over",
		Long: `Says what this machine lacks, and what Godwit has on it: kernel state by its marks,
taps, tunnels, inlets, guests' directories, disks, journals, each with what it belongs to.
Exit status: 0 all is well, 1 not.
--clean removes what belongs to nothing: never what a guest, a lease or a migration
under way uses, nor a QEMU or a disk that may be a guest's only one, nor a lab that runs.`,
		Example: "  godwit doctor\n  godwit doctor --config /etc/godwit/agent.yaml --clean", Args: argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			var found []finding
			if clean {
				if err := rootFor("doctor --clean", "to remove anything"); err != nil {
					return err
				}
				labs, err := lab.Down(c.Context(), nil, false)
				if err != nil {
					return err
				}
				for _, id := range labs.Removed {
					found = append(found, finding{"removed", true, "lab " + id})
				}
			}
			found = append(examine(c), found...)
			host, err := hostConfig(c, config)
			if err != nil {
				return err
			}
			if host == nil {
				found = append(found, unowned()...)
			} else {
				things, err := lookAtHost(c, host, clean)
				if err != nil {
					return err
				}
				found = append(found, things...)
			}
			return sayFindings(c, found)
		},
	}
	c.Flags().BoolVar(&clean, "clean", false, "remove what belongs to nothing, and what labs left that run no more")
	c.Flags().StringVar(&config, "config", defaultConfig, "configuration file of this host's agent")
	return c
}

// hostConfig is the agent's configuration; nil where the default one is not there.
func hostConfig(c *cobra.Command, path string) (*agent.Config, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && !c.Flags().Changed("config") {
		return nil, nil //nolint:nilnil // no agent here
	}
	return loadConfig(path, "name another by --config FILE")
}

// lookAtHost lists what is there of migrations, after removing what belongs to
// nothing if it is to be cleaned.
func lookAtHost(c *cobra.Command, host *agent.Config, clean bool) ([]finding, error) {
	var out []finding
	if clean {
		removed, err := leftover.Clean(c.Context(), host)
		for _, t := range removed {
			out = append(out, finding{"removed", true, t.String()})
		}
		if err != nil {
			return out, err
		}
	}
	things, err := leftover.Find(c.Context(), host)
	for _, t := range things {
		text := t.String()
		if t.Left() {
			text += "; `godwit doctor --clean` removes it"
		}
		out = append(out, finding{string(t.Kind), !t.Left(), text})
	}
	return out, err
}

// unowned lists kernel state where no configuration says what it belongs to.
func unowned() []finding {
	inv, err := netstate.Found()
	if err != nil {
		return nil
	}
	var out []finding
	for name := range inv.States {
		out = append(out, finding{"network state", true, "of guest " + name + "; name its agent's --config to see what it belongs to"})
	}
	return out
}

// sayFindings prints them. The error says that not all is well, and that it was said.
func sayFindings(c *cobra.Command, found []finding) error {
	bad := slices.ContainsFunc(found, func(f finding) bool { return !f.OK })
	if asJSON(c) {
		if err := printJSON(c.OutOrStdout(), found); err != nil {
			return err
		}
	} else {
		printFindings(c.OutOrStdout(), found)
	}
	if bad {
		return errSaid
	}
	return nil
}

func printFindings(w io.Writer, found []finding) {
	for _, f := range found {
		mark := "ok  "
		if !f.OK {
			mark = "LACK"
			if strings.Contains(f.Text, "doctor --clean") {
				mark = "LEFT"
			}
		}
		fmt.Fprintf(w, "%s  %-14s %s\n", mark, f.What, f.Text)
	}
}

func examine(c *cobra.Command) []finding {
	out := []finding{{"root", geteuid() == 0, "labs and agents need root"}}
	host, err := qemu.ThisHost(c.Context())
	switch {
	case err != nil:
		out = append(out, finding{"qemu", false, err.Error() + "; run `make build`"})
	case host.Accel == "tcg" && !host.Version.AtLeast(10, 0):
		out = append(out, finding{"qemu", false, fmt.Sprintf("%s corrupts migrated TCG guests; install QEMU 10 (backports on Debian 12)", host.Version)})
	default:
		out = append(out, finding{"qemu", true, fmt.Sprintf("%s, %s, cpu %s", host.Version, host.Accel, host.CPU)})
	}
	if _, _, err := image.Find(); err != nil {
		out = append(out, finding{"guest image", false, err.Error()})
	} else {
		out = append(out, finding{"guest image", true, "found"})
	}
	if data, err := os.ReadFile("/proc/sys/net/mptcp/enabled"); err != nil || string(data) != "1\n" {
		out = append(out, finding{"mptcp", false, "this kernel has no MPTCP; clients and the transfer qemu-mptcp need it"})
	} else {
		out = append(out, finding{"mptcp", true, "enabled"})
	}
	return append(out, labsHere()...)
}

// labsHere are the labs that run, and those that were left.
func labsHere() []finding {
	ids, err := lab.Found()
	if err != nil {
		return []finding{{"labs", false, err.Error()}}
	}
	var out []finding
	for _, id := range ids {
		if pid, runs := lab.RunningLab(id); runs {
			out = append(out, finding{"lab " + id, true, fmt.Sprintf("runs, kept by process %d; `godwit lab down %s` ends it", pid, id)})
		} else {
			out = append(out, finding{"lab " + id, false, "runs no more, and left something; `godwit doctor --clean` removes it"})
		}
	}
	return out
}
