package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/internal/units"
	"godwit/migration"
)

func newMigrate() *cobra.Command {
	var dryRun, watch bool
	flags := &requestFlags{}
	c := &cobra.Command{
		Use: "migrate GUEST SITE", Short: "move a guest of this host to another site or host",
		Long: `Moves a guest of this host to another site or host. The migration belongs to the agents: it
prints its id and ends as soon as it has begun; 'godwit watch ID' shows what becomes of it.
With --watch it shows that until it is over. Exit status: with --watch 0 completed, 1 not;
without it 0 begun, which is not moved yet, 1 not begun; 2 used wrongly.`,
		Example: "  godwit migrate web sanjose --watch\n  godwit migrate web sanjose --downtime 100ms --bandwidth 200mbit",
		Args:    argsExactly(2, "a guest and a site"),
		RunE: flags.requests(func(c *cobra.Command, client *api.Client, req migration.Request) error {
			if dryRun {
				return showPlan(c, client, req)
			}
			ask, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), agentPatience) // what has begun must have a name
			defer cancel()
			id, err := client.Migrate(ask, req)
			if err != nil {
				return err
			}
			if !watch {
				return printID(c, id)
			}
			if !asJSON(c) {
				fmt.Fprintln(c.OutOrStdout(), id)
			}
			return follow(c, client, id)
		}),
	}
	flags.add(c)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check both hosts and predict, change nothing")
	c.Flags().BoolVar(&watch, "watch", false, "show what happens until it is over; the exit status is the outcome's")
	return completes(askFlags(c), guestNames, places)
}

// requestFlags are the flags that say how to migrate.
type requestFlags struct {
	req                migration.Request
	downtime           time.Duration
	bandwidth, address string
	buffer             string
}

// add adds the flags of a request for one guest.
func (r *requestFlags) add(c *cobra.Command) {
	r.addShared(c)
	c.Flags().StringVar(&r.bandwidth, "bandwidth", "", "highest rate over all paths, of memory and disks together, such as 200mbit (default: what there is)")
	c.Flags().StringVar(&r.address, "address", "", "the guest's next address (default: a free one)")
}

// addShared adds those that may be of several guests.
func (r *requestFlags) addShared(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&r.req.Mode, "mode", "auto", strings.Join(migration.Modes, ", "))
	f.StringVar(&r.req.Transfer, "transfer", "auto", strings.Join(migration.Transfers, ", "))
	f.StringVar(&r.req.Network, "network", "auto", strings.Join(migration.Networks, ", "))
	f.StringVar(&r.req.TunnelKind, "tunnel", "auto", strings.Join(migration.Tunnels, ", "))
	r.downtime = migration.DefaultDowntime
	f.Var((*durationValue)(&r.downtime), "downtime", "longest pause of the guest that is allowed")
	f.StringVar(&r.buffer, "buffer", "", "memory for pages that wait or were sent, such as 64MiB; what has no room in the pause goes to a file (default: half of the guest's memory, at most 256MiB; with mode postcopy, and with hybrid before the rest follows, all of it; all guests that are sent together no more than half of what the host has free)")
	f.Var((*percentValue)(&r.req.Throttle), "throttle", "mode precopy: where it cannot follow what the guest writes, let its processors stand still for up to this many percent of the time (default: it gives up)")
	f.BoolVar(&r.req.InsecureTransfer, "insecure-transfer", false, "qemu-* transfers without encryption, for fair comparisons")
	oneOf(c, "mode", migration.Modes)
	oneOf(c, "transfer", migration.Transfers)
	oneOf(c, "network", migration.Networks)
	oneOf(c, "tunnel", migration.Tunnels)
}

// requests is the body of a command that asks the agent for what GUEST, SITE and flags say.
func (r *requestFlags) requests(body func(*cobra.Command, *api.Client, migration.Request) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		req, err := r.request(args[0], args[1])
		if err != nil {
			return err
		}
		client, err := ask(c)
		if err != nil {
			return err
		}
		return body(c, client, req)
	}
}

// request is what guest, destination and flags ask for.
func (r *requestFlags) request(guest, to string) (migration.Request, error) {
	req := r.req
	req.Guest, req.To, req.Downtime = guest, to, r.downtime
	for _, f := range []struct {
		name, value string
		known       []string
	}{
		{"mode", req.Mode, migration.Modes}, {"transfer", req.Transfer, migration.Transfers},
		{"network", req.Network, migration.Networks}, {"tunnel", req.TunnelKind, migration.Tunnels},
	} {
		if err := allKnown(f.name, []string{f.value}, f.known); err != nil {
			return req, err
		}
	}
	if t := req.Throttle; t < 0 || t > 99 {
		return req, usageError{fmt.Errorf("--throttle %d: not a share of the time that may be left out; 1 to 99 percent, such as 80", t)}
	}
	if req.Throttle > 0 && req.Mode != "precopy" {
		return req, usageError{fmt.Errorf("--throttle %d: goes with --mode precopy only", req.Throttle)}
	}
	if r.downtime <= 0 {
		return req, usageError{fmt.Errorf("--downtime %s: not a time that a guest may pause; such as 300ms", r.downtime)}
	}
	if r.bandwidth != "" {
		rate, err := units.Rate(r.bandwidth)
		if err != nil {
			return req, usageError{fmt.Errorf("--bandwidth %s: %w; such as 200mbit", r.bandwidth, err)}
		}
		req.Bandwidth = rate
	}
	if r.buffer != "" {
		size, err := units.Size(r.buffer)
		if err != nil {
			return req, usageError{fmt.Errorf("--buffer %s: %w; such as 64MiB", r.buffer, err)}
		}
		req.Buffer = size
	}
	if r.address != "" {
		addr, err := netip.ParseAddr(r.address)
		if err != nil {
			return req, usageError{fmt.Errorf("--address %s: not an address", r.address)}
		}
		req.NextAddress = addr
	}
	return req, nil
}

func printID(c *cobra.Command, id string) error {
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), map[string]string{"id": id})
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), id)
	return err
}
