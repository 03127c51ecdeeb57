package lab

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"godwit/internal/need"
	"godwit/lab/matrix"
	"godwit/migration"
)

// TestFaultSample tries the first cells of the matrix, each another fault, and every
// phase. `godwit lab faults --all` tries the rest. What a panic comes to TestNothingChanged sees.
func TestFaultSample(t *testing.T) {
	var faults []string
	for _, f := range matrix.Faults {
		if f.Name != matrix.GuestPanic {
			faults = append(faults, f.Name)
		}
	}
	if rep := tryCells(t, FaultOptions{Seed: sampleSeed, Sample: sampleCells, Faults: faults}); len(rep.Results) != sampleCells {
		t.Errorf("%d cells were tried", len(rep.Results))
	}
}

// TestModesOfTheMatrix: results of one mode are not gone on with in another, and a mode that is none is refused.
func TestModesOfTheMatrix(t *testing.T) {
	had := FaultReport{Mode: "postcopy", Results: []matrix.Result{{Cell: matrix.Cell{Fault: matrix.Cut3s, Phase: migration.Copy}}}}
	out := t.TempDir()
	if err := had.write(out); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[string]bool{"postcopy": true, "": false, "precopy": false, "post": false} {
		rep, err := RunFaults(t.Context(), FaultOptions{Out: out, Mode: mode, Faults: []string{matrix.Cut3s}, Phases: []string{"copy"}})
		if (err == nil) != ok || err != nil && !errors.Is(err, ErrUnusable) || ok && rep.Mode != mode {
			t.Errorf("mode %q: %v", mode, err)
		}
	}
}

// TestKilledWhileMakingReady: the destination's agent ends when it has written down that it
// makes ready, and has started a QEMU: the next one finds that, and ends it.
func TestKilledWhileMakingReady(t *testing.T) {
	if rep := tryCells(t, FaultOptions{Seed: 51, Faults: []string{"kill-both-agents"}, Phases: []string{"prepare"}}); len(rep.Results) != 1 {
		t.Errorf("%d cells were tried", len(rep.Results))
	}
}

// tryCells runs cells of the matrix, all of which have to be good.
func tryCells(t *testing.T, options FaultOptions) *FaultReport {
	t.Helper()
	need.Program(t, "nft")
	guestsImage(t)
	out := t.TempDir()
	options.Out, options.Tell = out, func(line string) { t.Log(line) }
	rep, err := RunFaults(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rep.Results {
		for _, bad := range r.Bad {
			t.Errorf("%s: %s", r.Cell, bad)
		}
	}
	if !t.Failed() {
		return rep
	}
	logs, err := filepath.Glob(filepath.Join(out, "*", "logs", "agent-*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		if data, err := os.ReadFile(path); err == nil {
			t.Logf("%s:\n%s", path, data[max(0, len(data)-8000):])
		}
	}
	return rep
}

// sampleSeed gives a sample without the long cuts, so that it takes about two minutes: each
// cell another fault, every phase, a guest that reboots in the very switch, a host that reboots.
const (
	sampleSeed  = 51795
	sampleCells = 8
)
