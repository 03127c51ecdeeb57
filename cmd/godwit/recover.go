package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"godwit/agent/api"
)

// decision is what a person says of a doubt; the zero value decides nothing.
type decision struct{ takeBack, giveUp, keep, fenced bool }

func newRecover() *cobra.Command {
	var d decision
	c := &cobra.Command{
		Use: "recover [GUEST|ID]", Short: "show what is in doubt on this host and what it would cost to decide; decide it",
		Long: `Without a flag it changes nothing: it shows the migrations that cannot end by
themselves, what each host knows, and what can be done.

--take-back, on the source: the guest that was let go runs on there. That is done only
if the destination itself says that its QEMU is gone, if the configured fence proves the
destination off, or if you say so with --fenced. If you are wrong the guest runs twice
until the hosts hear of each other; then the destination's is ended.

--give-up, on the destination: what may have run there is given up, for good; so is a guest
that waits for pages of a source which has been silent for long.

--keep, on the destination: the guest has landed, and its source, which could take it back,
has not been heard of since. It may be moved on, if the configured fence proves the source
off, or if you say so with --fenced.`,
		Example: "  godwit recover\n  godwit recover web\n  godwit recover web --take-back\n  godwit recover m-3f9a2c1b --take-back --fenced\n  godwit recover m-3f9a2c1b --give-up\n  godwit recover web --keep --fenced",
		Args:    argsAtMostOne("a guest's name or a migration's id"),
		RunE: func(c *cobra.Command, args []string) error {
			about := ""
			if len(args) == 1 {
				about = args[0]
			}
			if err := d.check(about); err != nil {
				return err
			}
			client, err := ask(c)
			if err != nil {
				return err
			}
			doubts, err := client.Doubts(c.Context(), about)
			if err != nil {
				return err
			}
			if !d.decides() {
				return showDoubts(c, doubts)
			}
			if len(doubts) != 1 {
				return usageError{fmt.Errorf("recover %s: it means %d migrations; name one by its id", about, len(doubts))}
			}
			return d.carryOut(c, client, doubts[0])
		},
	}
	c.Flags().BoolVar(&d.takeBack, "take-back", false, "give the guest back to this host, its source")
	c.Flags().BoolVar(&d.fenced, "fenced", false, "you vouch that the guest cannot run on the other host")
	c.Flags().BoolVar(&d.giveUp, "give-up", false, "give up what may have run on this host, the destination")
	c.Flags().BoolVar(&d.keep, "keep", false, "keep a guest that landed on this host, whose source does not answer")
	return completes(askFlags(c), doubtful)
}

func (d decision) decides() bool { return d.takeBack || d.giveUp || d.keep }

// check says what of the flags does not go together.
func (d decision) check(about string) error {
	switch {
	case d.takeBack && d.giveUp || d.takeBack && d.keep || d.giveUp && d.keep:
		return usageError{fmt.Errorf("recover: --take-back, --give-up and --keep are of different doubts; say one")}
	case d.fenced && !d.takeBack && !d.keep:
		return usageError{fmt.Errorf("recover: --fenced goes with --take-back and --keep")}
	case d.decides() && about == "":
		return usageError{fmt.Errorf("recover: name the guest or the migration")}
	}
	return nil
}

// carryOut asks for what was decided, and says what was done.
func (d decision) carryOut(c *cobra.Command, client *api.Client, doubt api.Doubt) error {
	switch {
	case d.giveUp:
		return decided(c, doubt, "given up here", client.GiveUp(c.Context(), doubt.ID))
	case d.keep:
		return decided(c, doubt, "kept here", client.Keep(c.Context(), doubt.ID, api.TakeBack{Fenced: d.fenced}))
	}
	return decided(c, doubt, "taken back, and continued here", client.TakeBack(c.Context(), doubt.ID, api.TakeBack{Fenced: d.fenced}))
}

func decided(c *cobra.Command, d api.Doubt, what string, err error) error {
	if err != nil {
		return err
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), map[string]string{"id": d.ID, "guest": d.Guest, "done": what})
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "guest %s, migration %s: %s\n", d.Guest, d.ID, what)
	return err
}

func showDoubts(c *cobra.Command, doubts []api.Doubt) error {
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), doubts)
	}
	w := c.OutOrStdout()
	if len(doubts) == 0 {
		fmt.Fprintln(w, "nothing is in doubt on this host")
	}
	for _, d := range doubts {
		fmt.Fprintf(w, "%s  guest %s, epoch %d, this host is its %s\n  here   %s\n  there  %s\n", d.ID, cmp.Or(d.Guest, "unknown"), d.Epoch, cmp.Or(d.Side, "unknown"), d.Here, d.There)
		if d.Risk != "" {
			fmt.Fprintf(w, "  risk   %s\n", d.Risk)
		}
		for _, way := range d.Ways {
			fmt.Fprintf(w, "  to do  %s\n", way)
		}
	}
	return nil
}
