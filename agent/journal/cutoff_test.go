package journal

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestCutOff: wherever a crash cuts the last record, the one before it is the state,
// and the journal goes on from there.
func TestCutOff(t *testing.T) {
	dir, path := written(t, 3)
	whole := records(t, path)
	for cut := lastBegins(whole); cut < len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		goesOn(t, dir, 2, fmt.Sprintf("cut at %d of %d", cut, len(whole)))
	}
}

// TestCutOffInItsRoom: a host that loses its power leaves any of a record's sectors in the
// room of the journal, and zeros for the rest. The record before it is the state, and what
// comes next is not glued to what was left.
func TestCutOffInItsRoom(t *testing.T) {
	dir, path := written(t, 3)
	whole := records(t, path)
	for from := lastBegins(whole); from < len(whole); from++ {
		for _, to := range []int{from + 1, (from + len(whole)) / 2, len(whole)} {
			data := append(slices.Clone(whole), make([]byte, 4096)...)
			clear(data[from:max(to, from+1)])
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			goesOn(t, dir, 2, fmt.Sprintf("zeros from %d to %d of %d", from, to, len(whole)))
		}
	}
}

// lastBegins is where the last of some records begins, bytes.
func lastBegins(whole []byte) int { return bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1 }

// goesOn opens a journal that should have come to a step, and writes another one.
func goesOn(t *testing.T, dir string, step int, what string) {
	t.Helper()
	j, s := reopen(t, dir)
	defer j.Close()
	if s.Step != step {
		t.Fatalf("%s: %+v", what, s)
	}
	if err := j.Append(state{Step: 9}, false); err != nil {
		t.Fatal(err)
	}
	if _, s := reopen(t, dir); s.Step != 9 {
		t.Fatalf("%s, gone on: %+v", what, s)
	}
}
