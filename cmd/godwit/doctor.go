package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

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
	c := &cobra.Command{
		Use: "doctor", Short: "say what this machine has, lacks, and has left over",
		Example: "  godwit doctor\n  godwit doctor --clean", Args: argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			found := examine(c)
			if clean {
				if err := lab.Down(c.Context(), nil, c.OutOrStdout()); err != nil {
					return err
				}
				removed, err := netstate.CleanUp(nil)
				if err != nil {
					return err
				}
				found = append(found, finding{"clean", true, fmt.Sprintf("removed %d pieces of kernel state", len(removed))})
			}
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), found)
			}
			bad := false
			for _, f := range found {
				mark := "ok  "
				if !f.OK {
					mark, bad = "LACK", true
				}
				fmt.Fprintf(c.OutOrStdout(), "%s  %-14s %s\n", mark, f.What, f.Text)
			}
			if bad {
				return errSaid
			}
			return nil
		},
	}
	c.Flags().BoolVar(&clean, "clean", false, "remove what labs and migrations left behind in this network namespace")
	return c
}

func examine(c *cobra.Command) []finding {
	out := []finding{{"root", os.Geteuid() == 0, "labs and agents need root"}}
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
	if ids, err := lab.Found(); err == nil && len(ids) > 0 {
		out = append(out, finding{"leftovers", false, fmt.Sprintf("labs %v are here; if none runs, `godwit doctor --clean`", ids)})
	}
	if inv, err := netstate.Found(); err == nil {
		for name := range inv.States {
			out = append(out, finding{"network state", true, "of guest " + name + ": an agent of this host keeps it, or `godwit doctor --clean`"})
		}
	}
	return out
}
