package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"godwit/lab"
	"godwit/lab/matrix"
	"godwit/migration"
)

func newLabFaults() *cobra.Command {
	opts := lab.FaultOptions{}
	var all bool
	c := &cobra.Command{
		Use: "faults", Short: "break a migration in every way, in every phase, and judge what is left",
		Long: `Tries faults × phases: a real guest moves between two sites, and in the phase
named something breaks. Judged is that the guest runs at exactly one place (its QEMUs
are asked), that its connections live, that nothing is left on either host, and that
doubt ends when something gets through. Prints a table, and writes OUT/faults.json and
OUT/faults.md after every cell; a later run with the same OUT goes on where this one
ended. Exit status: 0 every cell is as promised, 1 not.`,
		Example: "  godwit lab faults --out /tmp/faults --sample 20 --seed 3\n  godwit lab faults --out /tmp/faults --all\n  godwit lab faults --fault cut-20s --fault loss-30 --phase switch",
		Args:    argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if opts.Sample < 1 && !all {
				return usageError{fmt.Errorf("lab faults --sample %d: no cell at all; all that are chosen are tried with --all", opts.Sample)}
			}
			for _, f := range []struct {
				name          string
				values, known []string
			}{{"fault", opts.Faults, faultNames()}, {"phase", opts.Phases, phaseNames()}, {"mode", []string{cmp.Or(opts.Mode, migration.Modes[0])}, migration.Modes}} {
				if err := allKnown(f.name, f.values, f.known); err != nil {
					return err
				}
			}
			if err := needRoot(); err != nil {
				return err
			}
			if all {
				opts.Sample = 0
			}
			opts.Log = labLog()
			opts.Tell = func(line string) { fmt.Fprintln(os.Stderr, line) }
			rep, err := lab.RunFaults(c.Context(), opts)
			if rep != nil && (err == nil || len(rep.Results) > 0) { // else there is nothing to tell but that
				err = errors.Join(sayFaults(c, rep, opts.Out), err)
			}
			if rep == nil {
				return resumable(c, err, 0)
			}
			return resumable(c, err, rep.Sums.Bad)
		},
	}
	f := c.Flags()
	f.StringVar(&opts.Out, "out", "godwit-faults", "directory for faults.json, faults.md and the logs of bad cells")
	f.Uint64Var(&opts.Seed, "seed", 1, "order of the cells, and when in its phase each fault comes")
	f.IntVar(&opts.Sample, "sample", 10, "how many cells to try, of those chosen")
	f.BoolVar(&all, "all", false, "try all that are chosen")
	f.StringSliceVar(&opts.Faults, "fault", nil, "these faults alone, such as cut-20s")
	f.StringSliceVar(&opts.Phases, "phase", nil, "these phases alone, such as switch")
	f.StringVar(&opts.Mode, "mode", "", "of the migrations (auto); postcopy: most of memory follows the guest, slowly")
	f.BoolVar(&opts.Again, "again", false, "try again what OUT has a result of")
	oneOf(c, "fault", faultNames())
	oneOf(c, "phase", phaseNames())
	oneOf(c, "mode", migration.Modes)
	return c
}

// resumable is the end of a command of many runs, of which bad ones were not as promised.
func resumable(c *cobra.Command, err error, bad int) error {
	switch {
	case c.Context().Err() != nil:
		return errors.New("interrupted; the same command goes on where this ended")
	case errors.Is(err, lab.ErrUnusable):
		return usageError{err}
	case err == nil && bad > 0:
		return errSaid
	}
	return err
}

func sayFaults(c *cobra.Command, rep *lab.FaultReport, out string) error {
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), rep)
	}
	matrix.Table(c.OutOrStdout(), rep.Results)
	if abs, err := filepath.Abs(filepath.Join(out, "faults.md")); err == nil {
		fmt.Fprintln(c.OutOrStdout(), "\nresults:", abs)
	}
	return nil
}

func phaseNames() (out []string) {
	for _, p := range migration.Phases {
		out = append(out, string(p))
	}
	return out
}

func faultNames() (out []string) {
	for _, f := range matrix.Faults {
		out = append(out, f.Name)
	}
	return out
}
