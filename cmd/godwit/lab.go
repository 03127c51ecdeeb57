package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"godwit/internal/oneline"
	"godwit/internal/textfile"
	"godwit/lab"
	"godwit/lab/report"
	"godwit/lab/report/live"
	"godwit/lab/scenario"
)

func newLab() *cobra.Command {
	c := &cobra.Command{
		Use: "lab", Short: "real multi-site networks with real guests on this machine",
		Example: "  godwit lab run examples/cross-subnet.yaml --out /tmp/run\n  godwit lab up examples/cross-subnet.yaml\n  godwit lab selftest",
	}
	c.AddCommand(newLabRun(), newLabUp(), newLabDown(), newLabSelfTest(), newLabCheck(), newLabFaults(), newLabRandom())
	return c
}

func newLabRun() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "run FILE", Short: "run a scenario and judge it",
		Long: `Builds the sites of a scenario file from network namespaces and emulated links,
boots its guests, runs its traffic and steps, and judges what clients felt.
Writes OUT/report.json and OUT/report.html. Exit status: 0 every expectation
holds, 1 not, 2 the scenario is unusable.`,
		Example: "  godwit lab run examples/cross-subnet.yaml --out /tmp/run",
		Args:    argsExactly(1, "one scenario file"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := readScenario(c, args[0])
			if err != nil {
				lab.DropReports(out) //nolint:errcheck // why there is no run is told
				return err
			}
			return runLab(c, s, out)
		},
	}
	c.Flags().StringVar(&out, "out", "godwit-run", "directory for report.json, report.html and logs")
	return c
}

// readScenario reads a scenario file, and tells of keys that do nothing in it.
func readScenario(c *cobra.Command, path string) (*scenario.Scenario, error) {
	data, err := scenarioText(c.Context(), path)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Parse(path, data)
	if err != nil {
		return nil, usageError{err}
	}
	for _, key := range s.Idle {
		fmt.Fprintln(c.ErrOrStderr(), key)
	}
	return s, nil
}

// scenarioText is what a file says, or what comes over a descriptor that the command was given, for which it waits
// until it is interrupted.
func scenarioText(ctx context.Context, path string) ([]byte, error) {
	f, err := textfile.Open(path)
	if err != nil {
		return nil, usageError{fmt.Errorf("read scenario: %w", err)}
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })() //nolint:errcheck // a regular file has none, and does not wait
	data, err := io.ReadAll(io.LimitReader(f, scenario.MaxFile+1))
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("read scenario %s: %w", path, context.Cause(ctx))
	case err != nil:
		return nil, usageError{fmt.Errorf("read scenario: %w", err)}
	}
	return data, nil
}

// runLab runs a scenario with a live view, and prints the summary.
func runLab(c *cobra.Command, s *scenario.Scenario, out string) error {
	if err := needRoot(); err != nil {
		return err
	}
	view := newView()
	rep, err := lab.Run(c.Context(), s, lab.Options{Out: out, Tell: view.Log, Live: view.Update, Log: labLog()})
	view.Close()
	if rep == nil {
		if errors.Is(err, lab.ErrUnusable) {
			return usageError{err}
		}
		return err
	}
	if asJSON(c) {
		err = errors.Join(err, rep.Write(c.OutOrStdout()))
	} else {
		report.Summary(c.OutOrStdout(), rep, inColour(os.Stdout))
		if abs, aerr := filepath.Abs(filepath.Join(out, "report.html")); aerr == nil && err == nil {
			fmt.Fprintln(c.OutOrStdout(), "report:", abs)
		}
	}
	if err == nil && !rep.OK {
		err = errSaid
	}
	return err
}

// newView shows a run on standard error while it happens.
func newView() *live.View {
	v := live.New(os.Stderr, isTerminal(os.Stderr))
	v.Rows(func() int { return rowsOf(os.Stderr) })
	if !inColour(os.Stderr) {
		v.NoColour()
	}
	return v
}

// needRoot refuses to begin what only root can do.
func needRoot() error { return rootFor("lab", "to make network namespaces") }

func rootFor(what, why string) error {
	if geteuid() != 0 {
		return usageError{fmt.Errorf("%s: needs root, %s; run it with sudo", what, why)}
	}
	return nil
}

// geteuid is a variable for tests, which run as root.
var geteuid = os.Geteuid

// selfTest is a variable for tests, which have it find what they like.
var selfTest = lab.SelfTest

// labLog shows what the lab's own parts warn of when GODWIT_DEBUG is set.
func labLog() *slog.Logger {
	if os.Getenv("GODWIT_DEBUG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func newLabCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "read a scenario file and say what is wrong with it",
		Example: "  godwit lab check my.yaml", Args: argsExactly(1, "one scenario file"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := readScenario(c, args[0])
			if err != nil {
				return err
			}
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), map[string]any{
					"scenario": s.Name, "sites": len(s.Sites), "clients": len(s.Clients), "guests": len(s.Guests),
					"traffic": len(s.Traffic), "steps": len(s.Steps), "expectations": len(s.Expect),
				})
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s, %s, %s, %s\n", s.Name,
				oneline.Many(len(s.Sites), "site"), oneline.Many(len(s.Guests), "guest"), oneline.Many(len(s.Steps), "step"), oneline.Many(len(s.Expect), "expectation"))
			return err
		},
	}
}

func newLabSelfTest() *cobra.Command {
	return &cobra.Command{
		Use: "selftest", Short: "show that emulated links deliver the delay and rate asked for",
		Example: "  godwit lab selftest --json", Args: argsExactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needRoot(); err != nil {
				return err
			}
			w := c.OutOrStdout()
			if asJSON(c) {
				w = os.Stderr
			}
			results, err := selfTest(c.Context(), w)
			if err != nil {
				return err
			}
			if asJSON(c) {
				err = printJSON(c.OutOrStdout(), results)
			}
			for _, r := range results {
				if !r.OK {
					return errSaid
				}
			}
			return err
		},
	}
}
