package journal

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGrows: more records than there was room for.
func TestGrows(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	for i := range 2*room/1000 + 1 {
		if err := j.Append(state{Step: i, Text: strings.Repeat("x", 1000)}, i%100 == 0); err != nil {
			t.Fatal(err)
		}
		if _, s := reopen(t, dir); s.Step != i {
			t.Fatalf("read %d, want %d", s.Step, i)
		}
	}
	if size := info(t, path).Size(); size < 2*room || size > 5*room {
		t.Errorf("%d bytes", size)
	}
}

// TestDiskFull: a record that went in half is taken back, so that the next one is
// not glued to it.
func TestDiskFull(t *testing.T) {
	dir, path := written(t, 1)
	whole := records(t, path)
	if err := os.WriteFile(path, whole, 0o600); err != nil { // no room is left
		t.Fatal(err)
	}
	j, _ := reopen(t, dir)
	limit(t, uint64(len(whole))+20, func() {
		if err := j.Append(state{Step: 2, Text: strings.Repeat("x", 100)}, false); !errors.Is(err, unix.EFBIG) {
			t.Fatalf("written past the limit: %v", err)
		}
	})
	if err := j.Append(state{Step: 3}, true); err != nil {
		t.Fatal(err)
	}
	if _, s := reopen(t, dir); s.Step != 3 {
		t.Fatalf("%+v", s)
	}
}

// TestCreateOnFullDisk: a migration does not begin with a journal that has no room, and no part of one is left.
func TestCreateOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	limit(t, room/2, func() {
		if _, err := Create(dir, "m-1"); !errors.Is(err, unix.EFBIG) {
			t.Errorf("created past the limit: %v", err)
		}
	})
	if ids, err := Unfinished(dir); err != nil || len(ids) != 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
	j, err := Create(dir, "m-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestReserve: who asks for more room than the disk has leaves what there is to who needs it.
func TestReserve(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	whole, before := len(records(t, path)), info(t, path)
	limit(t, uint64(before.Size()), func() { //nolint:gosec // a file's size
		if err := j.Reserve(room / 2); err != nil {
			t.Errorf("room that is there: %v", err)
		}
		if err := j.Reserve(room); !errors.Is(err, unix.EFBIG) {
			t.Errorf("room that is not there: %v", err)
		}
		for step := 2; len(records(t, path)) < whole+room/2; step++ {
			if err := j.Append(state{Step: step, Text: strings.Repeat("x", 1000)}, true); err != nil {
				t.Fatalf("step %d, in the room that there was: %v", step, err)
			}
		}
	})
	if err := j.Reserve(2 * room); err != nil || info(t, path).Size() < before.Size()+room {
		t.Errorf("room on a disk that has it: %v, %d bytes", err, info(t, path).Size())
	}
}

// TestShorterRecord: where the disk has no room for a record, a shorter one still has the room that was made before: a
// refusal, after all that a guest's report has.
func TestShorterRecord(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	limit(t, uint64(info(t, path).Size()), func() { //nolint:gosec // a file's size
		if err := j.Append(state{Step: 2, Text: strings.Repeat("x", 2*room)}, true); !errors.Is(err, unix.EFBIG) {
			t.Fatalf("written past the limit: %v", err)
		}
		if err := j.Append(state{Step: 3}, true); err != nil {
			t.Fatal(err)
		}
	})
	if _, s := reopen(t, dir); s.Step != 3 {
		t.Fatalf("%+v", s)
	}
}

// limit bounds the size of files that this process writes, bytes, while f runs
// (setrlimit(2), RLIMIT_FSIZE; Go ignores SIGXFSZ).
func limit(t *testing.T, size uint64, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}
