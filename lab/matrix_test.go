package lab

import (
	"os"
	"path/filepath"
	"testing"

	"godwit/internal/need"
	"godwit/lab/image"
)

// TestFaultSample tries the first cells of the matrix, each another fault, and every
// phase. `godwit lab faults --all` tries the rest.
func TestFaultSample(t *testing.T) {
	need.QEMU(t)
	need.Lab(t)
	need.Program(t, "nft")
	folder, err := filepath.Abs("../build/guest")
	if err != nil {
		t.Fatal(err)
	}
	need.File(t, filepath.Join(folder, image.InitrdFile))
	t.Setenv(image.Variable, folder)
	out := t.TempDir()
	rep, err := RunFaults(t.Context(), FaultOptions{Seed: sampleSeed, Sample: sampleCells, Out: out, Tell: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Results) != sampleCells {
		t.Errorf("%d cells were tried", len(rep.Results))
	}
	for _, r := range rep.Results {
		for _, bad := range r.Bad {
			t.Errorf("%s: %s", r.Cell, bad)
		}
	}
	if !t.Failed() {
		return
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
}

// sampleSeed gives a sample without the long cuts, so that it takes about two minutes: each
// cell another fault, every phase, a guest that reboots in the very switch, a host that reboots.
const (
	sampleSeed  = 51795
	sampleCells = 8
)
