package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"godwit/lab/bench"
)

func newBench() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "measure, variants in turn, and compare medians",
		Example: "  godwit bench handover\n  godwit bench memory --rows idle,churn --rounds 3",
	}
	for _, t := range []struct {
		table bench.Table
		short string
	}{
		{bench.Handover(), "what clients feel of a move, and a moved connection against a fresh one"},
		{bench.Memory(), "how fast memory gets there, against QEMU's own ways"},
	} {
		c.AddCommand(newBenchTable(t.table, t.short))
	}
	return c
}

func newBenchTable(table bench.Table, short string) *cobra.Command {
	var opts bench.Options
	var rows, variants []string
	var names, ways []string
	for _, r := range table.Rows {
		names = append(names, r.Name)
		for _, v := range r.Variants {
			if !slices.Contains(ways, v.Name) {
				ways = append(ways, v.Name)
			}
		}
	}
	c := &cobra.Command{
		Use: table.Name, Short: short,
		Long: short + `.

Each run is a run of the lab, and its report is kept in OUT: a bench that was
interrupted goes on where it was. What another build gave is run again, and
what a row's scenario gave that is another now. Rows: ` + strings.Join(names, ", ") + `.
Exit status 1 where an aim is not reached.`,
		Example: fmt.Sprintf("  godwit bench %s --rows %s --rounds 3 --out /tmp/bench", table.Name, names[0]),
		Args:    argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if opts.Rounds < 1 {
				return usageError{fmt.Errorf("bench %s --rounds %d: each variant must run at least once, such as --rounds 3", table.Name, opts.Rounds)}
			}
			chosen, err := chooseRows(table, rows)
			for i := range chosen {
				if err == nil && len(variants) > 0 {
					chosen[i], err = chosen[i].Only(variants)
				}
			}
			if err != nil {
				return usageError{err}
			}
			if err := rootFor("bench", "to make network namespaces"); err != nil {
				return err
			}
			if opts.Build, err = thisBuild(); err != nil {
				return err
			}
			opts.Tell = func(line string) { fmt.Fprintln(os.Stderr, line) }
			results, err := bench.Run(c.Context(), chosen, opts)
			switch {
			case err != nil && !slices.ContainsFunc(results, bench.Result.Measured): // there is nothing to tell but that
			case asJSON(c):
				err = errors.Join(err, printJSON(c.OutOrStdout(), results))
			default:
				bench.Print(c.OutOrStdout(), results)
			}
			missed := 0
			for _, r := range results {
				if slices.ContainsFunc(r.Aims, func(a bench.AimSeen) bool { return !a.Reached }) {
					missed++
				}
			}
			return resumable(c, err, missed)
		},
	}
	c.Flags().StringVar(&opts.Out, "out", "godwit-bench-"+table.Name, "directory of the reports")
	c.Flags().IntVar(&opts.Rounds, "rounds", 5, "runs of each variant")
	c.Flags().StringSliceVar(&rows, "rows", nil, "only these rows")
	oneOf(c, "rows", names)
	c.Flags().StringSliceVar(&variants, "variants", nil, "only these variants; ratios are to the first of them")
	oneOf(c, "variants", ways)
	c.Flags().BoolVar(&opts.Again, "again", false, "run also what has a report already")
	return c
}

// thisBuild is the version, and what tells builds apart that have the same one, as they do while somebody changes
// something.
func thisBuild() (string, error) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("which build this is: %w", err)
	}
	defer program.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, program); err != nil {
		return "", fmt.Errorf("which build this is: %w", err)
	}
	return fmt.Sprintf("%s (%x)", version, sum.Sum(nil)[:6]), nil
}

func chooseRows(table bench.Table, names []string) ([]bench.Row, error) {
	if len(names) == 0 {
		return table.Rows, nil
	}
	var out []bench.Row
	for _, name := range names {
		i := slices.IndexFunc(table.Rows, func(r bench.Row) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("bench %s has no row %q; see --help", table.Name, name)
		}
		out = append(out, table.Rows[i])
	}
	return out, nil
}
