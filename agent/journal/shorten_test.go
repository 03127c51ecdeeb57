package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// says appends so many states from step on that are of a report's size, each another.
func says(t *testing.T, j *File, step, n int) {
	t.Helper()
	text := strings.Repeat("x", recordLimit/2)
	for i := range n {
		if err := j.Append(state{step + i, text}, i%8 == 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongJournalBeginsAnew: who repairs something forward for days, and says each time what is wrong now, neither
// fills the disk nor leaves a journal that nobody can read.
func TestLongJournalBeginsAnew(t *testing.T) {
	dir, path := written(t, 1)
	if err := os.WriteFile(begunAnew(path), []byte("half of one"), 0o600); err != nil { // of an agent that was killed
		t.Fatal(err)
	}
	j, _ := reopen(t, dir)
	const many = 3 * fileLimit / recordLimit
	says(t, j, 2, many)
	if _, s := reopen(t, dir); s.Step != many+1 {
		t.Errorf("read back %d, want %d", s.Step, many+1)
	}
	if size := info(t, path).Size(); size > longest+2*recordLimit {
		t.Errorf("%d bytes", size)
	}
	if mode := info(t, path).Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o: keys of tunnels may be in it", mode)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	var first state
	if err := First(dir, "m-1", &first); err != nil || first.Step < 2 {
		t.Errorf("its first record is now %d, %v", first.Step, err)
	}
	if err := j.Remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the end %v, %v", left, err)
	}
}

// TestLongJournalGoesOn: one that cannot begin anew, as on a disk that has no file left, goes on as long as an agent
// can read it, and begins anew when it can.
func TestLongJournalGoesOn(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	if err := os.MkdirAll(filepath.Join(begunAnew(path), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", recordLimit/2)
	step, full := 1, error(nil)
	for ; full == nil && step < 2*fileLimit/len(text); step++ {
		full = j.Append(state{step + 1, text}, step%8 == 0)
	}
	last := step - 1 // that it took
	if size := info(t, path).Size(); !errors.Is(full, errFull) || size < fileLimit/2 || size > fileLimit {
		t.Fatalf("%d bytes, %v", size, full)
	}
	var s state
	if err := Read(dir, "m-1", &s); err != nil || s.Step != last {
		t.Errorf("%d, %v; want %d", s.Step, err, last)
	}
	if err := os.RemoveAll(begunAnew(path)); err != nil {
		t.Fatal(err)
	}
	for range 20 { // it is not tried each time
		if full = j.Append(state{step, text}, true); full == nil {
			break
		}
	}
	if full != nil {
		t.Fatal(full)
	}
	says(t, j, step+1, 4)
	if size := info(t, path).Size(); size > longest {
		t.Errorf("%d bytes", size)
	}
	if err := Read(dir, "m-1", &s); err != nil || s.Step != step+4 {
		t.Errorf("%d, %v; want %d", s.Step, err, step+4)
	}
}

// TestLongJournalOpened: an agent that finds a long journal keeps its state, also where the disk takes no more.
func TestLongJournalOpened(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	says(t, j, 2, longest/(recordLimit/2)) // it has what is not to be written twice: it does not begin anew before the next
	if size := info(t, path).Size(); size < longest {
		t.Fatalf("%d bytes", size)
	}
	if err := os.WriteFile(begunAnew(path), []byte("half of one"), 0o600); err != nil { // of an agent that was killed
		t.Fatal(err)
	}
	again, was := reopen(t, dir)
	if _, err := os.Stat(begunAnew(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a journal was left: %v", err)
	}
	limit(t, 2*room, func() {
		if err := again.Append(state{Step: 1, Text: strings.Repeat("x", 2*room)}, true); err == nil {
			t.Error("written past the limit")
		}
	})
	if _, s := reopen(t, dir); s.Step != was.Step || s.Step < 2 {
		t.Errorf("read back %d, want %d", s.Step, was.Step)
	}
}

// TestNameOnTheDisk: nothing is written to a journal that began anew before its name is on the disk, else a host that
// loses its power would have the one of before, without it.
func TestNameOnTheDisk(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	says(t, j, 2, 1)
	j.unnamed, j.broken = true, errors.New("a sync of the directory that failed")
	j.path = filepath.Join(dir, "away", "m-1.journal")
	before := info(t, path).Size()
	if err := j.Append(state{Step: 3}, true); err == nil || info(t, path).Size() != before {
		t.Errorf("written all the same: %v", err)
	}
	j.path = path
	if err := j.Append(state{Step: 4}, true); err != nil {
		t.Fatal(err)
	}
	if _, s := reopen(t, dir); s.Step != 4 || j.unnamed {
		t.Errorf("%d, unnamed %v", s.Step, j.unnamed)
	}
}
