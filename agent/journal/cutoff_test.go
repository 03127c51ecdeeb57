package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
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

// TestHoleBeforeTheLast: a host that loses its power may leave one of several records that were not synced, and not
// those before it. What follows the one that is lost goes with it. Where it was on the disk it is damaged: what the
// journal said since may have been acted upon.
func TestHoleBeforeTheLast(t *testing.T) {
	const damaged = 0
	for name, c := range map[string]struct {
		synced string // which of the records
		again  int    // an agent was started again after so many; 0: none was
		hole   int    // in which
		want   int    // the state that is read
	}{
		"none was synced":            {"", 0, 2, 1},
		"one before it was":          {"1", 0, 2, 1},
		"the last was about to be":   {"5", 0, 2, 1},
		"an agent was started again": {"1", 3, 2, 1},
		"it was synced":              {"2", 0, 2, damaged},
		"one after it was":           {"3", 0, 2, damaged},
		"it was, some time ago":      {"2", 3, 2, damaged},
		"it was, as those before":    {"123", 0, 3, damaged},
	} {
		dir, path := written(t, 0)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		j, err := Create(dir, "m-1")
		for n := 1; n <= 5; n++ {
			err = errors.Join(err, j.Append(state{n, "text"}, strings.Contains(c.synced, fmt.Sprint(n))))
			if n == c.again {
				j, _ = reopen(t, dir)
			}
		}
		if err = errors.Join(err, j.Close()); err != nil {
			t.Fatal(err)
		}
		whole := append(records(t, path), make([]byte, block)...)
		begins := bytes.Index(whole, fmt.Appendf(nil, `{"step":%d`, c.hole)) - len("00000000 ")
		ends := begins + bytes.IndexByte(whole[begins:], '\n') + 1
		for _, hole := range [][2]int{{begins, begins + 1}, {begins + 12, ends - 1}, {ends - 1, ends}, {begins, ends}, {begins + 12, ends + 12}} {
			data := slices.Clone(whole)
			clear(data[hole[0]:hole[1]])
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s: zeros from %d to %d", name, hole[0], hole[1])
			if err := Read(dir, "m-1", &state{}); (err == nil) != (c.want != damaged) {
				t.Errorf("%s: %v", what, err)
			} else if err == nil {
				goesOn(t, dir, c.want, what)
			}
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
