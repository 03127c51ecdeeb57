package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"godwit/agent/config"
	"godwit/agent/describe"
	"godwit/vm/qemu"
)

func newDescribe() *cobra.Command {
	var name string
	var ended bool
	c := &cobra.Command{
		Use: "describe QMP-SOCKET", Short: "write the description of a guest that runs, to be adopted by it",
		Long: "Write the description of a guest that runs, to be adopted by it. With --ended: of one that has ended on this host,\n" +
			"to be started by hand and adopted; no agent starts it again.",
		Example: "  godwit guest describe /run/web/qmp.sock > web.yaml\n  godwit guest adopt web.yaml\n  godwit guest describe --ended web > web.yaml",
		Args:    argsExactly(1, "the path of a QMP socket, or with --ended a guest's name"),
		RunE: func(c *cobra.Command, args []string) error {
			if name != "" && !config.IsGuestName(name) {
				return usageError{fmt.Errorf("--name %q: not one word of letters, digits, '.', '_' and '-'", name)}
			}
			look := ofRunning
			if ended {
				look = ofEnded
			}
			found, err := look(c, args[0])
			if err != nil {
				return err
			}
			if name != "" {
				found.Description.Name = name
			}
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), found)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), found.YAML())
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the guest (default: what its QEMU calls it, or guest)")
	c.Flags().BoolVar(&ended, "ended", false, "of the guest of that name that has ended on this host")
	completesAs(c, &ended, endedNames, nil)
	return c
}

// ofRunning is what a guest is whose QEMU listens on a socket.
func ofRunning(c *cobra.Command, socket string) (describe.Found, error) {
	running, err := describe.Look(c.Context(), socket)
	if errors.Is(err, qemu.ErrGone) {
		return describe.Found{}, usageError{fmt.Errorf("describe guest: %w", err)}
	}
	var found describe.Found
	if err == nil {
		found, err = describe.Of(running)
	}
	if err != nil {
		return describe.Found{}, fmt.Errorf("describe guest: %w", err)
	}
	return found, nil
}
