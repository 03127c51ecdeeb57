package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/peer"
)

func newInit() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "init HOST…", Short: "make a fleet's CA and a certificate for each host",
		Long: `Makes DIR/ca.pem, and DIR/HOST.pem with DIR/HOST.key for every host named. Copy
ca.pem and the host's two files to the host, and name them in its agent.yaml; see
docs/agent.md. The CA's key is not kept: to add hosts later, make all anew.`,
		Example: "  godwit init montreal dallas sanjose --out fleet",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, hosts []string) error {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			now := time.Now()
			ca, err := peer.NewFleetCA(dir, now)
			if err != nil {
				return err
			}
			for _, h := range hosts {
				if err := ca.Issue(h, now); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d certificates in %s\n", len(hosts), dir)
			return err
		},
	}
	c.Flags().StringVar(&dir, "out", "fleet", "directory")
	return c
}
