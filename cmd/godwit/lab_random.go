package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"godwit/lab/random"
)

func newLabRandom() *cobra.Command {
	var opts random.Options
	var show bool
	c := &cobra.Command{
		Use: "random", Short: "run scenarios made by chance, and judge them",
		Long: `Makes scenarios from seeds: sites, links, clients, guests, traffic, moves, and in
half of them something that breaks meanwhile. Runs each, and judges it by what it
expects and by what no run may show: a guest in doubt or lost, a connection lost,
something left behind, numbers that contradict each other, a guest's list of its connections
that its clients contradict, a next address that is silent. Writes OUT/SEED/scenario.yaml
(which godwit lab run takes) and its report; a later run with the same OUT goes on where
this one ended. Exit status: 0 all are as promised, 1 not.`,
		Example: "  godwit lab random --seed 1 --runs 20 --out /tmp/random\n  godwit lab random --seed 7 --show",
		Args:    argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if show && asJSON(c) {
				return printJSON(c.OutOrStdout(), map[string]any{"seed": opts.Seed, "scenario": string(random.Scenario(opts.Seed))})
			}
			if show {
				_, err := c.OutOrStdout().Write(random.Scenario(opts.Seed))
				return err
			}
			if opts.Runs < 1 {
				return usageError{errors.New("lab random: --runs is less than one")}
			}
			if err := needRoot(); err != nil {
				return err
			}
			opts.Log = labLog()
			opts.Tell = func(line string) { fmt.Fprintln(os.Stderr, line) }
			results, err := random.Run(c.Context(), opts)
			bad := 0
			for _, r := range results {
				if len(r.Bad) > 0 {
					bad++
				}
			}
			switch {
			case err != nil && len(results) == 0: // there is nothing to tell but that
			case asJSON(c):
				err = errors.Join(err, printJSON(c.OutOrStdout(), append([]random.Result{}, results...)))
			default:
				fmt.Fprintf(c.OutOrStdout(), "%d of %d as promised\n", len(results)-bad, len(results))
			}
			return resumable(c, err, bad)
		},
	}
	f := c.Flags()
	f.StringVar(&opts.Out, "out", "godwit-random", "directory of scenarios and reports")
	f.Uint64Var(&opts.Seed, "seed", 1, "the first scenario; each run takes the next")
	f.IntVar(&opts.Runs, "runs", 10, "how many")
	f.BoolVar(&opts.Again, "again", false, "run again what OUT has a result of")
	f.BoolVar(&show, "show", false, "print the scenario of --seed, and run nothing")
	return c
}
