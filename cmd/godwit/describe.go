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
	c := &cobra.Command{
		Use: "describe QMP-SOCKET", Short: "write the description of a guest that runs, to be adopted by it",
		Example: "  godwit guest describe /run/web/qmp.sock > web.yaml\n  godwit guest adopt web.yaml",
		Args:    argsExactly(1, "the path of a QMP socket"),
		RunE: func(c *cobra.Command, args []string) error {
			if name != "" && !config.IsGuestName(name) {
				return usageError{fmt.Errorf("--name %q: not one word of letters, digits, '.', '_' and '-'", name)}
			}
			running, err := describe.Look(c.Context(), args[0])
			if errors.Is(err, qemu.ErrGone) {
				return usageError{fmt.Errorf("describe guest: %w", err)}
			}
			if err != nil {
				return fmt.Errorf("describe guest: %w", err)
			}
			found, err := describe.Of(running)
			if err != nil {
				return fmt.Errorf("describe guest: %w", err)
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
	return c
}
