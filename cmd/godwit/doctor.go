package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"godwit/agent/config"
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
	Text string `json:"text"`           // what was found, and what to do where it is not well
	Note bool   `json:"note,omitempty"` // well, and there is something to know
	Look bool   `json:"look,omitempty"` // not well, and a person's to decide
}

func fine(what, text string) finding { return finding{What: what, OK: true, Text: text} }
func lack(what, text string) finding { return finding{What: what, Text: text} }
func note(what, text string) finding { return finding{What: what, OK: true, Text: text, Note: true} }

func newDoctor() *cobra.Command {
	var clean bool
	var config string
	c := &cobra.Command{
		Use: "doctor", Short: "say what this machine has, lacks, and has left over",
		Long: `Says what this machine lacks, and what Godwit has on it: kernel state by its marks,
taps, tunnels, inlets, guests' directories, disks, journals, each with what it belongs to.
With an agent's configuration: also whether the bridge, uplinks and certificate that it
names are there, its directories can be written, and its peers' agents answer. A note is nothing that is lacking; LOOK is for a person to decide.
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
					found = append(found, lack("clean", err.Error()))
				}
				for _, id := range labs.Removed {
					found = append(found, fine("removed", "lab "+id))
				}
			}
			host, err := hostConfig(c, config)
			if err != nil {
				return err
			}
			found = append(examine(c, host), found...)
			if host == nil {
				found = append(found, unowned()...)
			} else {
				found = append(found, configured(c.Context(), host)...)
				found = append(found, lookAtHost(c, host, clean)...)
			}
			return sayFindings(c, found)
		},
	}
	c.Flags().BoolVar(&clean, "clean", false, "remove what belongs to nothing, and what labs left that run no more")
	c.Flags().StringVar(&config, "config", defaultConfig, "configuration file of this host's agent")
	return c
}

// hostConfig is the agent's configuration; nil where the default one is not there.
func hostConfig(c *cobra.Command, path string) (*config.Config, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && !c.Flags().Changed("config") {
		return nil, nil //nolint:nilnil // no agent here
	}
	return loadConfig(path, "name another by --config FILE")
}

// lookAtHost lists what is there of migrations, after removing what belongs to
// nothing if it is to be cleaned.
func lookAtHost(c *cobra.Command, host *config.Config, clean bool) (out []finding) {
	if clean {
		removed, err := leftover.Clean(c.Context(), host)
		for _, t := range removed {
			out = append(out, fine("removed", t.String()))
		}
		if err != nil {
			out = append(out, lack("clean", err.Error()))
		}
	}
	things, err := leftover.Find(c.Context(), host)
	for _, t := range things {
		out = append(out, ofThing(t))
	}
	if err != nil {
		out = append(out, lack("left over", err.Error()))
	}
	return out
}

// ofThing is one thing of migrations. A QEMU without care, and a journal or another file that cannot be read, bar their
// guest: a person must look.
func ofThing(t leftover.Thing) finding {
	switch {
	case t.Left():
		return finding{What: string(t.Kind), Text: t.String() + "; `godwit doctor --clean` removes it"}
	case t.Stays == "":
		return fine(string(t.Kind), t.String())
	case t.Kind == leftover.Guest || t.Kind == leftover.Journal || t.Kind == leftover.File:
		return finding{What: string(t.Kind), Text: t.String(), Look: true}
	}
	return note(string(t.Kind), t.String())
}

// unowned lists kernel state where no configuration says what it belongs to.
func unowned() []finding {
	inv, err := netstate.Found()
	if err != nil {
		return nil
	}
	var out []finding
	for name := range inv.States {
		out = append(out, fine("network state", "of guest "+name+"; name its agent's --config to see what it belongs to"))
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
		switch {
		case f.Note:
			mark = "note"
		case f.Look:
			mark = "LOOK"
		case !f.OK && strings.Contains(f.Text, "doctor --clean"):
			mark = "LEFT"
		case !f.OK:
			mark = "LACK"
		}
		fmt.Fprintf(w, "%s  %-14s %s\n", mark, f.What, f.Text)
	}
}

// examine looks at the machine; host: for an agent by that configuration, nil: for labs.
func examine(c *cobra.Command, host *config.Config) []finding {
	out := []finding{{What: "root", OK: geteuid() == 0, Text: "labs and agents need root"}}
	out = append(out, kernelHere()...)
	out = append(out, emulator(qemu.ThisHost(c.Context())))
	_, _, err := image.Find()
	out = append(out, guestImage(err, host))
	enabled, err := os.ReadFile("/proc/sys/net/mptcp/enabled")
	out = append(out, mptcp(err == nil && string(enabled) == "1\n", host))
	return append(out, labsHere()...)
}

func emulator(host qemu.Host, err error) finding {
	switch {
	case err != nil:
		return lack("qemu", err.Error()+"; install qemu-system-x86, 7.2 or newer where KVM works, else 10 (on Debian 12 from backports), as `make build` does")
	case host.Accel == "tcg" && !host.Version.AtLeast(10, 0):
		return lack("qemu", fmt.Sprintf("%s corrupts migrated TCG guests; install QEMU 10 (backports on Debian 12)", host.Version))
	case !host.Version.AtLeast(7, 2):
		return lack("qemu", fmt.Sprintf("%s is too old; 7.2 or newer is needed", host.Version))
	}
	return fine("qemu", fmt.Sprintf("%s, %s, cpu %s", host.Version, host.Accel, host.CPU))
}

// guestImage is what labs boot; an agent's guests bring their own.
func guestImage(err error, host *config.Config) finding {
	switch {
	case err == nil:
		return fine("guest image", "found")
	case host != nil:
		return note("guest image", "only the lab needs it: "+err.Error())
	}
	return lack("guest image", err.Error())
}

// mptcp is for labs' clients; an agent's guests and clients have kernels of their own.
func mptcp(enabled bool, host *config.Config) finding {
	switch {
	case enabled:
		return fine("mptcp", "enabled")
	case host != nil:
		return note("mptcp", "this kernel has none (net.mptcp.enabled); only the transfers mptcp and qemu-mptcp need it here")
	}
	return lack("mptcp", "this kernel has no MPTCP; clients and the transfer qemu-mptcp need it")
}

// labsHere are the labs that run, and those that were left.
func labsHere() []finding {
	ids, err := lab.Found()
	if err != nil {
		return []finding{lack("labs", err.Error())}
	}
	var out []finding
	for _, id := range ids {
		if pid, runs := lab.RunningLab(id); runs {
			out = append(out, fine("lab "+id, fmt.Sprintf("runs, kept by process %d; `godwit lab down %s` ends it", pid, id)))
		} else {
			out = append(out, lack("lab "+id, "runs no more, and left something; `godwit doctor --clean` removes it"))
		}
	}
	return out
}
