package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent"
	"godwit/lab/scenario"
	"godwit/migration"
)

func newMigrate() *cobra.Command {
	var req migration.Request
	var downtime time.Duration
	var bandwidth, address string
	var watch bool
	c := &cobra.Command{
		Use: "migrate GUEST SITE", Short: "move a guest of this host to another site or host",
		Example: "  godwit migrate web sanjose --watch\n  godwit migrate web sanjose --downtime 100ms --bandwidth 200mbit",
		Args:    argsExactly(2, "a guest and a site"),
		RunE: func(c *cobra.Command, args []string) error {
			req.Guest, req.To, req.Downtime = args[0], args[1], downtime
			if bandwidth != "" {
				rate, err := scenario.ParseRate(bandwidth)
				if err != nil {
					return usageError{fmt.Errorf("--bandwidth %s: %w; such as 200mbit", bandwidth, err)}
				}
				req.Bandwidth = rate
			}
			if address != "" {
				addr, err := netip.ParseAddr(address)
				if err != nil {
					return usageError{fmt.Errorf("--address %s: not an address", address)}
				}
				req.NextAddress = addr
			}
			client, err := ask(c)
			if err != nil {
				return err
			}
			id, err := client.Migrate(c.Context(), req)
			if err != nil {
				return err
			}
			if !watch {
				return printID(c, id)
			}
			return follow(c, client, id)
		},
	}
	f := c.Flags()
	f.StringVar(&req.Mode, "mode", "auto", strings.Join(migration.Modes, ", "))
	f.StringVar(&req.Transfer, "transfer", "auto", strings.Join(migration.Transfers, ", "))
	f.StringVar(&req.Network, "network", "auto", strings.Join(migration.Networks, ", "))
	f.StringVar(&req.TunnelKind, "tunnel", "auto", strings.Join(migration.Tunnels, ", "))
	f.DurationVar(&downtime, "downtime", migration.DefaultDowntime, "longest pause of the guest that is allowed")
	f.StringVar(&bandwidth, "bandwidth", "", "highest rate over all paths, such as 200mbit (default: what there is)")
	f.StringVar(&address, "address", "", "the guest's next address (default: a free one)")
	f.BoolVar(&req.InsecureTransfer, "insecure-transfer", false, "qemu-* transfers without encryption, for fair comparisons")
	f.BoolVar(&watch, "watch", false, "show what happens until it is over")
	return askFlags(c)
}

func printID(c *cobra.Command, id string) error {
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), map[string]string{"id": id})
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), id)
	return err
}

func newAbort() *cobra.Command {
	return askFlags(&cobra.Command{
		Use: "abort ID", Short: "call a migration off, as long as the guest has not been handed over",
		Example: "  godwit abort m-3f9a2c1b", Args: argsExactly(1, "a migration's id"),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := ask(c)
			if err != nil {
				return err
			}
			return client.Abort(c.Context(), args[0])
		},
	})
}

func newWatch() *cobra.Command {
	return askFlags(&cobra.Command{
		Use: "watch [ID]", Short: "show what happens in a migration, by default the newest",
		Example: "  godwit watch\n  godwit watch m-3f9a2c1b --json", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := ask(c)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return follow(c, client, args[0])
			}
			all, err := client.Reports(c.Context())
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("watch: no migration since the agent started; begin one with `godwit migrate GUEST SITE`")
			}
			return follow(c, client, all[len(all)-1].ID)
		},
	})
}

func newHistory() *cobra.Command {
	return askFlags(&cobra.Command{
		Use: "history", Short: "list the migrations since the agent started", Example: "  godwit history --json",
		Args: argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := ask(c)
			if err != nil {
				return err
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
		},
	})
}

func historyLine(r agent.Report) string {
	outcome := string(r.Outcome)
	if outcome == "" {
		outcome = "under way"
	}
	if r.Problem != nil {
		outcome += ": " + r.Problem.Text
	}
	return fmt.Sprintf("%s  %s  %-12s %s → %s  %s", time.Unix(0, r.Requested).Format(time.DateTime), r.ID, r.Guest, r.From, r.To, outcome)
}

// follow prints a migration's events until its outcome. Any outcome but completed
// is a failure.
func follow(c *cobra.Command, client *agent.Client, id string) error {
	for after := 0; ; {
		part, err := client.Events(c.Context(), id, after)
		if err != nil {
			return err
		}
		for _, e := range part.Events {
			after = e.N
			if err := printEvent(c, e); err != nil {
				return err
			}
		}
		if part.Over {
			return outcome(c.Context(), client, id)
		}
	}
}

func outcome(ctx context.Context, client *agent.Client, id string) error {
	rep, err := client.Report(ctx, id)
	if err != nil {
		return err
	}
	if rep.Outcome == migration.Completed {
		return nil
	}
	return errSaid
}

func printEvent(c *cobra.Command, e agent.Event) error {
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), e)
	}
	text := e.Text
	switch e.Kind {
	case "phase":
		text = "phase " + string(e.Phase)
	case "event":
		text = string(e.Name)
	case "progress":
		text = string(e.Data)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s  %-12s %s\n", time.Unix(0, e.At).Format("15:04:05.000"), e.Host, text)
	return err
}
