package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"godwit/internal/units"
)

func newLimit() *cobra.Command {
	return completes(askFlags(&cobra.Command{
		Use: "limit ID RATE", Short: "change the bandwidth of a migration under way, over all paths; 0: no limit",
		Long: `Change the bandwidth of a migration under way, over all paths, memory and disks together,
on the host that its guest leaves. 0: no limit.

Not with transfer qemu-mptcp, nor with --insecure-transfer: QEMU sends by itself then, and keeps
what it began with. Abort such a migration, and begin it again with --bandwidth.`,
		Example: "  godwit limit m-3f9a2c1b 50mbit\n  godwit limit m-3f9a2c1b 0", Args: argsExactly(2, "a migration's id and a rate"),
		RunE: func(c *cobra.Command, args []string) error {
			var rate int64
			if args[1] != "0" {
				var err error
				if rate, err = units.Rate(args[1]); err != nil {
					return usageError{fmt.Errorf("limit %s: rate %s: %w; such as 50mbit, or 0", args[0], args[1], err)}
				}
			}
			client, err := ask(c)
			if err != nil {
				return err
			}
			if err := client.SetBandwidth(c.Context(), args[0], rate); err != nil || !asJSON(c) {
				return err
			}
			return printID(c, args[0])
		},
	}), runningIDs)
}
