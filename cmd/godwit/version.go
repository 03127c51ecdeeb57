package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Example: "  godwit version --json", Args: argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), map[string]string{"version": version, "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "godwit %s\n", c.Root().Version)
			return err
		},
	}
}
