package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/evacuate"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
)

func newEvacuate() *cobra.Command {
	var to string
	var dryRun bool
	width := policy.EvacuateWidth
	flags := &requestFlags{}
	c := &cobra.Command{
		Use: "evacuate HOST", Short: "move every guest of this host away",
		Long: `Moves every guest of HOST, the host of the agent that is asked, to another site or
host. Without --to each goes where it fits best: every host that the agent knows is asked
for its free memory and for the time that the migration would take there. The fastest to
move begin; --width says how many move at once.

Ctrl-C begins no more migrations; those under way go on, and are named. A guest that
cannot move stays as it is, with the reason. Exit status: 0 all have moved, 1 not, 2 used
wrongly. With --dry-run: 0 all have a destination.`,
		Example: "  godwit evacuate montreal\n  godwit evacuate montreal --to sanjose --dry-run\n  godwit evacuate montreal --bandwidth 200mbit --width 4 --json",
		Args:    argsExactly(1, "a host"),
		RunE: func(c *cobra.Command, args []string) error {
			like, err := flags.request("", "")
			if err != nil {
				return err
			}
			if width < 1 {
				return usageError{fmt.Errorf("--width %d: at least one guest must move at a time", width)}
			}
			client, err := ask(c)
			if err != nil {
				return err
			}
			if err := isHost(c, client, args[0]); err != nil {
				return err
			}
			req := evacuate.Request{To: to, Like: like, Bandwidth: like.Bandwidth, Width: width, DryRun: dryRun}
			if !asJSON(c) && !dryRun {
				req.Tell = func(g evacuate.Guest) { tellGuest(c.OutOrStdout(), time.Now(), g) }
			}
			done, err := evacuate.Run(c.Context(), client, req)
			if err != nil {
				return err
			}
			return sayEvacuated(c, done)
		},
	}
	c.Flags().StringVar(&to, "to", "", "site or host for all guests (default: for each where it fits best)")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "ask all hosts and choose, change nothing")
	c.Flags().IntVar(&width, "width", width, "how many guests move at once")
	c.Flags().StringVar(&flags.bandwidth, "bandwidth", "", "highest rate of all these migrations together, such as 200mbit (default: what there is)")
	flags.addShared(c)
	completesFlag(c, "to", places)
	return completes(askFlags(c), ownHost)
}

// isHost refuses a host that the agent is not of: each agent moves its own guests.
func isHost(c *cobra.Command, client *api.Client, name string) error {
	info, err := client.Host(c.Context())
	if err != nil || info.Host == name {
		return err
	}
	for _, n := range info.Neighbours {
		if n.Host == name {
			return usageError{fmt.Errorf("evacuate %s: this is the agent of host %s, and each moves its own guests; run it on host %s", name, info.Host, name)}
		}
	}
	return unknownPlace("evacuate %s: this is the agent of host %s, which knows no such host; see `godwit host ls`", name, info.Host)
}

// tellGuest prints one change of one guest.
func tellGuest(w io.Writer, now time.Time, g evacuate.Guest) {
	text := ""
	switch {
	case g.Moved():
		text = "moved"
		if g.TotalS != nil {
			text += fmt.Sprintf(" in %.1f s", *g.TotalS)
		}
	case g.Outcome != "":
		text = string(g.Outcome) + ": " + g.Reason
	case g.Reason != "":
		text = "stays: " + g.Reason
	case g.Phase == migration.Check, g.To == "" && g.Migration == "": // it has just begun, or is free again
		return
	case g.Phase != "":
		text = "phase " + string(g.Phase)
	case g.To == "":
		text = "is busy with " + evacuate.BusyWith(g.Migration) + ", which is waited for"
	case g.Migration == "":
		text = "will move" + predictedWords(g.Predicted)
	default:
		text = "begins, migration " + g.Migration
	}
	fmt.Fprintf(w, "%s  %s%s\n", now.Format("15:04:05"), guestTo(g), text)
}

// guestTo is a guest and where it goes, in columns.
func guestTo(g evacuate.Guest) string {
	to := ""
	if g.To != "" {
		to = "→ " + g.To
	}
	return fmt.Sprintf("%-12s %-14s ", g.Guest, to)
}

func predictedWords(p *record.Prediction) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(": predicted %.1f s, %.0f ms of downtime, %.1f MB on the wire", p.MigrationS, p.DowntimeMS, float64(p.WireBytes)/1e6)
}

// sayEvacuated prints what became of all guests. The error says that not all is well, and
// that it was said.
func sayEvacuated(c *cobra.Command, done evacuate.Result) error {
	if asJSON(c) {
		if err := printJSON(c.OutOrStdout(), done); err != nil {
			return err
		}
	} else {
		printEvacuated(c.OutOrStdout(), done)
	}
	if !done.OK {
		return errSaid
	}
	return nil
}

func printEvacuated(w io.Writer, done evacuate.Result) {
	moved := 0
	var stay []string
	for _, g := range done.Guests {
		switch {
		case done.DryRun && g.Reason == "":
			moved++
			fmt.Fprintf(w, "%s%s\n", guestTo(g), strings.TrimPrefix(predictedWords(g.Predicted), ": "))
		case g.Moved():
			moved++
		case g.Outcome == "" && g.Migration != "":
			stay = append(stay, fmt.Sprintf("%-12s is under way: %s", g.Guest, g.Reason))
		case g.Outcome == "" || g.Outcome == migration.Refused || g.Outcome == migration.Aborted:
			stay = append(stay, fmt.Sprintf("%-12s stays: %s", g.Guest, g.Reason))
		default:
			stay = append(stay, fmt.Sprintf("%-12s %s: %s", g.Guest, g.Outcome, g.Reason))
		}
	}
	words := "have moved"
	if done.DryRun {
		words = "have a destination"
	}
	switch {
	case len(done.Guests) == 0:
		fmt.Fprintf(w, "%s has no guests\n", done.Host)
	default:
		fmt.Fprintf(w, "%d of %d guests of %s %s\n", moved, len(done.Guests), done.Host, words)
	}
	for _, line := range stay {
		fmt.Fprintln(w, line)
	}
}
