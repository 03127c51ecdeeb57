package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/record"
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

func newPlan() *cobra.Command {
	flags := &requestFlags{}
	c := &cobra.Command{
		Use: "plan GUEST SITE", Short: "check both hosts and predict what a migration would cost; changes nothing",
		Long: `Checks both hosts as a migration does, and predicts what it would cost: how long until the guest
runs there, for how long it would stand still, and what would be sent. Nothing is changed.

A prediction looks at a sample of the guest's memory, twice: what of it is zeros, what the guest
writes, and, for the transfers lanes and mptcp, what the destination has already (memory kept of
an earlier visit, the guest's image) and how far the rest packs, as it would be packed for these
paths. It looks at what the guest's disks hold, and how often the guest writes to them meanwhile; it takes those writes to be anywhere in that. It takes
the paths to be as fast as configured, but for what they lose: of a train of small packets it is seen
how many come back, where a path is fast enough for them. It takes both hosts to be as fast as at the
last move between them; before the first, as fast as the paths (an emulated guest as slow as such are).
It takes account of what guests that are on their way to the same host have yet to send. It knows nothing of
what else will use the paths, of pages that guests share which move at the same time, or of how long hooks
take. What it is not sure of it says in a note.`,
		Example: "  godwit plan web sanjose\n  godwit plan web sanjose --bandwidth 50mbit --json",
		Args:    argsExactly(2, "a guest and a site"),
		RunE:    flags.requests(showPlan),
	}
	flags.add(c)
	return completes(askFlags(c), guestNames, places)
}

func showPlan(c *cobra.Command, client *api.Client, req migration.Request) error {
	rep, err := client.Plan(c.Context(), req)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), rep)
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "go: %s from %s to %s, %s, %s, %s\n", rep.Guest, rep.From, rep.To, rep.Mode, rep.Transfer, rep.Network)
	printAddresses(w, rep)
	if p := rep.Predicted; p != nil {
		fmt.Fprintf(w, "predicted %.1f s, %.0f ms of downtime, %.1f MB on the wire\n", p.MigrationS, p.DowntimeMS, float64(p.WireBytes)/1e6)
		if b := p.Memory; b != nil {
			fmt.Fprintf(w, "memory    %.1f of %.1f MB are not zeros, %.1f MB of these are there already, the rest packs to %.0f %%; the guest writes %.1f MB/s\n",
				float64(b.Content)/1e6, float64(b.Bytes)/1e6, float64(b.Known)/1e6, 100*b.Ratio, float64(b.DirtyRate)/1e6)
		}
		if p.Throttled > 0 {
			fmt.Fprintf(w, "throttled to stand still for %d %% of the time, as it writes faster than the paths carry\n", p.Throttled)
		}
	}
	for _, note := range rep.Notes {
		fmt.Fprintf(w, "note      %s\n", note)
	}
	return nil
}

// printAddresses prints which address becomes which: the first of a family is the one that the guest goes by. Of one
// that came to nothing none does.
func printAddresses(w io.Writer, rep record.Report) {
	plan := rep.Plan()
	switch rep.Outcome {
	case migration.Aborted, migration.Refused, migration.Failed:
		return
	}
	for _, next := range plan.Next {
		was, kept := "", ""
		if i := slices.IndexFunc(plan.Held, func(o migration.Address) bool { return o.Prefix.Addr().Is4() == next.Prefix.Addr().Is4() }); i >= 0 {
			was = plan.Held[i].Prefix.Addr().String() + " → "
		}
		if plan.KeepsAddress() {
			was, kept = "", ", kept"
		}
		fmt.Fprintf(w, "address   %s%s%s\n", was, next.Prefix.Addr(), kept)
	}
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
