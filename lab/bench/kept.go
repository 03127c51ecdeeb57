package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"godwit/lab"
	"godwit/lab/report"
	"godwit/lab/scenario"
)

// origin is what a run was of. It lies beside the run's report, which says nothing of another build, nor of what a
// scenario was before.
type origin struct {
	Build    string `json:"build"`
	Scenario string `json:"scenario"`
}

// Files of a run's directory.
const (
	reportFile = "report.json"
	originFile = "bench.json"
)

// kept is the report of a run that was made before; nil where there is none. Of one that is not taken it is nil, and why
// says the reason.
func kept(dir string, want origin) (rep *report.Report, why string) {
	data, err := os.ReadFile(filepath.Join(dir, reportFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ""
	}
	if err != nil {
		return nil, err.Error()
	}
	was, err := readOrigin(dir)
	switch {
	case err != nil:
		return nil, "which build its report is of is not known: " + err.Error()
	case was.Build != want.Build:
		return nil, fmt.Sprintf("its report is of another build, %s", was.Build)
	case was.Scenario != want.Scenario:
		return nil, "its report is of another scenario"
	}
	if rep, err = report.Read(bytes.NewReader(data)); err != nil {
		return nil, err.Error()
	}
	return rep, ""
}

func readOrigin(dir string) (o origin, err error) {
	path := filepath.Join(dir, originFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return o, err // with the path
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// runScenario runs a variant in dir, and keeps there what it was a run of.
func runScenario(ctx context.Context, v Variant, dir string, of origin, opts Options) (*report.Report, error) {
	s, err := scenario.Parse(v.Name, []byte(v.Scenario))
	if err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(dir, originFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	run := opts.Run
	if run == nil {
		run = lab.Run
	}
	rep, err := run(ctx, s, lab.Options{Out: dir, Costs: true, Plain: v.Plain})
	if ctx.Err() != nil { // a run that was cut short is none
		os.RemoveAll(dir)
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	return rep, os.WriteFile(filepath.Join(dir, originFile), data, 0o644)
}
