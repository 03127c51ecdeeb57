package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/record"
)

func newHistory() *cobra.Command {
	var show string
	c := &cobra.Command{
		Use: "history", Short: "list this host's migrations, the newest first, or show one", Example: "  godwit history --json\n  godwit history --show m-3f9a2c1b",
		Args: argsExactly(0, "no arguments"),
		RunE: onAgent(func(c *cobra.Command, client *api.Client, _ []string) error {
			if show != "" {
				return showReport(c, client, show)
			}
			all, err := client.Reports(c.Context())
			if err != nil {
				return err
			}
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), all)
			}
			for _, r := range all {
				fmt.Fprintln(c.OutOrStdout(), historyLine(r))
			}
			return nil
		}),
	}
	c.Flags().StringVar(&show, "show", "", "a migration's id: what became of each of its guest's connections")
	completesFlag(c, "show", migrationIDs)
	return askFlags(c)
}

func historyLine(r record.Report) string {
	outcome := cmp.Or(string(r.Outcome), "under way")
	if r.Problem != nil {
		outcome += ": " + r.Problem.Text
	}
	return fmt.Sprintf("%s  %s  %-12s %s → %s  %s", time.Unix(0, r.Requested).Format(time.DateTime), r.ID, r.Guest, r.From, r.To, outcome)
}

// showReport prints one migration with all its connections.
func showReport(c *cobra.Command, client *api.Client, id string) error {
	rep, err := client.Report(c.Context(), id)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), rep)
	}
	w := c.OutOrStdout()
	fmt.Fprintln(w, historyLine(rep))
	printAddresses(w, rep)
	for _, note := range rep.Notes {
		fmt.Fprintln(w, "note     ", note)
	}
	printSurvival(w, rep.Survival)
	return nil
}
