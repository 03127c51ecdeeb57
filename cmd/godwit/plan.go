package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/migration"
)

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
