package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"godwit/lab/scenario"
)

//go:embed demo.yaml
var demoScenario []byte

func newDemo() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "demo", Short: "move a real guest across three sites, its clients connected, before your eyes",
		Long: `Builds three sites with emulated WAN links on this machine, boots a real guest,
connects a client with live MPTCP connections, and moves the guest from site to
site. Nothing leaves this machine, and nothing but the report is left on it.`,
		Example: "  godwit demo\n  godwit demo --out /tmp/demo",
		Args:    argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := scenario.Parse("demo.yaml", demoScenario)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return runLab(c, s, out)
		},
	}
	c.Flags().StringVar(&out, "out", filepath.Join(os.TempDir(), "godwit-demo"), "directory for the report")
	return c
}
