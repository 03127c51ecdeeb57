package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/migration"
)

func newEvents() *cobra.Command {
	return askFlags(&cobra.Command{
		Use: "events", Short: "show what happens in all migrations of this host, from now on",
		Example: "  godwit events\n  godwit events --json | jq -r .name", Args: argsExactly(0, "no arguments"),
		RunE: onAgent(func(c *cobra.Command, client *api.Client, _ []string) error {
			phases := map[string]migration.Phase{} // of each migration
			err := client.Feed(c.Context(), func(e api.FeedEvent) error {
				if asJSON(c) {
					return printLine(c, e)
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s  %-10s ", e.Migration, e.Guest); err != nil {
					return err
				}
				switch e.Kind {
				case "phase":
					phases[e.Migration] = e.Phase
				case "outcome":
					delete(phases, e.Migration)
				}
				return printEvent(c, e.Event, phases[e.Migration])
			})
			if errors.Is(err, context.Canceled) { // Ctrl-C
				return nil
			}
			return err
		}),
	})
}
