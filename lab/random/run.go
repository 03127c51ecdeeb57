package random

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"godwit/lab"
	"godwit/lab/scenario"
)

// Options of runs.
type Options struct {
	Out   string // directory: of each run SEED/scenario.yaml, SEED/report.json, and its logs where it was bad
	Seed  uint64 // the first; each run has the next
	Runs  int
	Again bool         // also what has a result in Out
	Tell  func(string) // hears a line for each run; may be nil
	Log   *slog.Logger
}

// Result is what one run came to.
type Result struct {
	Seed     uint64   `json:"seed"`
	Scenario string   `json:"scenario"` // its file
	Outcomes []string `json:"outcomes"` // of its migrations
	Bad      []string `json:"bad"`      // what it should not have shown; none: all is as promised
	TookS    float64  `json:"took_s"`
}

// resultFile is in a run's directory when the run is over.
const resultFile = "result.json"

// Run carries out one scenario after the other. It returns what it has when ctx ends,
// with ctx's error; a machine that cannot run one is an error, too.
func Run(ctx context.Context, opts Options) ([]Result, error) {
	if opts.Tell == nil {
		opts.Tell = func(string) {}
	}
	if err := lab.MakeOut(opts.Out); err != nil {
		return nil, fmt.Errorf("%w: output directory: %w", lab.ErrUnusable, err)
	}
	var results []Result
	for i := range uint64(opts.Runs) { //nolint:gosec // the command line bounds it
		seed := opts.Seed + i
		dir := filepath.Join(opts.Out, fmt.Sprint(seed))
		r, err := earlier(dir, seed, opts.Again)
		if err != nil {
			r, err = one(ctx, seed, dir, opts.Log)
		}
		if err != nil {
			return results, err
		}
		results = append(results, r)
		opts.Tell(r.Line())
	}
	return results, nil
}

// Line is the result for a person.
func (r Result) Line() string {
	line := fmt.Sprintf("seed %d, %.0f s, migrations %v: ", r.Seed, r.TookS, r.Outcomes)
	if len(r.Bad) == 0 {
		return line + "as promised"
	}
	for _, b := range r.Bad {
		line += "\n  ✗ " + b
	}
	return line + "\n  godwit lab run " + r.Scenario
}

// earlier is what a run of that seed gave before, if the scenario is the same still.
func earlier(dir string, seed uint64, again bool) (r Result, err error) {
	had, err := os.ReadFile(filepath.Join(dir, "scenario.yaml"))
	if err != nil || again || string(had) != string(Scenario(seed)) {
		return r, errors.Join(err, errors.New("no result that counts"))
	}
	data, err := os.ReadFile(filepath.Join(dir, resultFile))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

func one(ctx context.Context, seed uint64, dir string, log *slog.Logger) (Result, error) {
	scene := made(seed)
	text := []byte(scene.text.String())
	file := filepath.Join(dir, "scenario.yaml")
	r := Result{Seed: seed, Scenario: file, Bad: []string{}}
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, resultFile)), os.MkdirAll(dir, 0o755), os.WriteFile(file, text, 0o644)); err != nil {
		return r, fmt.Errorf("%w: output directory: %w", lab.ErrUnusable, err)
	}
	s, err := scenario.Parse(file, text)
	if err != nil {
		return r, err
	}
	begun := time.Now()
	rep, err := lab.Run(ctx, s, lab.Options{Out: dir, Log: log})
	if ctx.Err() != nil {
		return r, ctx.Err() // half a run is none
	}
	if rep == nil {
		return r, fmt.Errorf("seed %d: %w", seed, err)
	}
	r.TookS = time.Since(begun).Seconds()
	for i := range rep.Migrations {
		r.Outcomes = append(r.Outcomes, rep.Migrations[i].Outcome.Word())
	}
	r.Bad = append(append(r.Bad, unmet(rep)...), Judge(rep, scene.silence())...)
	if len(r.Bad) == 0 {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, "logs")))
	}
	data, jerr := json.MarshalIndent(r, "", " ")
	return r, errors.Join(err, jerr, os.WriteFile(filepath.Join(dir, resultFile), data, 0o644))
}
