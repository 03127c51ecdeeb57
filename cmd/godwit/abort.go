package main

import (
	"github.com/spf13/cobra"

	"godwit/agent/api"
)

func newAbort() *cobra.Command {
	return completes(askFlags(&cobra.Command{
		Use: "abort ID", Short: "call a migration off, as long as the guest has not been handed over",
		Example: "  godwit abort m-3f9a2c1b", Args: argsExactly(1, "a migration's id"),
		RunE: onAgent(func(c *cobra.Command, client *api.Client, args []string) error {
			if err := client.Abort(c.Context(), args[0]); err != nil || !asJSON(c) {
				return err
			}
			return printID(c, args[0])
		}),
	}), runningIDs)
}
