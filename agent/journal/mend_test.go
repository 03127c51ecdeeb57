package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// badDisk is a file as the kernel has it: what is written is on the disk when it was synced, by blocks, and what a sync
// could not write counts as written.
type badDisk struct {
	cache []byte
	disk  []byte
	dirty map[int]bool
	fails int  // how many syncs will
	wrote bool // what those that fail were to write is on the disk nevertheless
	full  int  // how many writes will fail
	then  int  // how many once a sync has failed
}

const block = 4096

func (d *badDisk) ReadAt(p []byte, at int64) (int, error) {
	n := copy(p, d.cache[min(at, int64(len(d.cache))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (d *badDisk) WriteAt(p []byte, at int64) (int, error) {
	if d.full > 0 {
		d.full--
		return 0, unix.EIO
	}
	end := int(at) + len(p)
	if grow := end - len(d.cache); grow > 0 {
		d.cache = append(d.cache, make([]byte, grow)...)
	}
	for b := int(at) / block; b*block < end; b++ {
		d.dirty[b] = true
	}
	return copy(d.cache[at:], p), nil
}

func (d *badDisk) Truncate(size int64) error {
	d.cache = d.cache[:size:size]
	return nil
}

func (d *badDisk) Datasync() error {
	failed := d.fails > 0
	d.fails = max(d.fails-1, 0)
	if !failed || d.wrote {
		if grow := len(d.cache) - len(d.disk); grow > 0 {
			d.disk = append(d.disk, make([]byte, grow)...)
		}
		for b := range d.dirty {
			if at := b * block; at < len(d.cache) {
				copy(d.disk[at:], d.cache[at:min(at+block, len(d.cache))])
			}
		}
	}
	clear(d.dirty)
	if failed {
		d.full, d.then = d.then, 0
		return unix.EIO
	}
	return nil
}

func (d *badDisk) Sync() error {
	if err := d.Datasync(); err != nil {
		return err
	}
	d.disk = d.disk[:len(d.cache)]
	return nil
}

func (d *badDisk) Close() error { return nil }

// onBadDisk is a journal with one state on the disk, and room.
func onBadDisk(t *testing.T) (*File, *badDisk) {
	t.Helper()
	d := &badDisk{dirty: map[int]bool{}}
	j := newFile("m-1", d)
	if err := errors.Join(j.Append(opening{Version}, false), d.Sync(), j.Append(state{Step: 1}, true)); err != nil {
		t.Fatal(err)
	}
	return j, d
}

// step is the state in what is left of a journal.
func step(t *testing.T, data []byte) int {
	t.Helper()
	last, _, err := lastRecord(data)
	var s state
	if err == nil {
		err = json.Unmarshal(last, &s)
	}
	if err != nil {
		t.Fatalf("%v: %.100q", err, data)
	}
	return s.Step
}

// TestSyncFails: a record of which the disk has said that it did not take it never comes back, and none before it is
// lost for what comes after it.
func TestSyncFails(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		j, d := onBadDisk(t)
		d.fails, d.wrote = 1, wrote
		long := strings.Repeat("x", 3*block)
		if err := j.Append(state{2, long}, false); err != nil {
			t.Fatal(err)
		}
		if err := j.Append(state{Step: 3}, true); !errors.Is(err, unix.EIO) {
			t.Fatalf("a sync that failed: %v", err)
		}
		if err := j.Append(state{4, long}, false); err != nil {
			t.Fatal(err)
		}
		if a, h := step(t, d.cache), step(t, d.disk); a != 4 || h != 2 {
			t.Errorf("written %v: the next agent reads %d, after a crash of the host %d", wrote, a, h)
		}
		if err := j.Append(state{Step: 5}, true); err != nil {
			t.Fatal(err)
		}
		if h := step(t, d.disk); h != 5 {
			t.Errorf("written %v: what was synced is %d after a crash of the host", wrote, h)
		}
	}
}

// TestDiskComesBack: nothing is written while the disk takes nothing, and it goes on when it does.
func TestDiskComesBack(t *testing.T) {
	j, d := onBadDisk(t)
	d.fails = 3
	for n := range 2 { // each is tried, and so is to mend that
		if err := j.Append(state{Step: 2 + n}, true); !errors.Is(err, unix.EIO) {
			t.Fatalf("a sync that failed: %v", err)
		}
		if s := step(t, d.cache); s != 1 {
			t.Errorf("the next agent reads %d", s)
		}
	}
	if err := j.Append(state{Step: 9}, true); err != nil {
		t.Fatal(err)
	}
	if a, h := step(t, d.cache), step(t, d.disk); a != 9 || h != 9 {
		t.Errorf("the next agent reads %d, after a crash of the host %d", a, h)
	}
}

// TestDiskForgets: what the kernel does not have any more either is not written over what there is.
func TestDiskForgets(t *testing.T) {
	j, d := onBadDisk(t)
	if err := j.Append(state{Step: 2}, false); err != nil {
		t.Fatal(err)
	}
	d.fails = 1
	from := bytes.LastIndex(d.cache, []byte(`{"step":2`))
	clear(d.cache[from : from+4])
	if err := j.Append(state{Step: 3}, true); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	if err := j.Append(state{Step: 4}, true); err == nil {
		t.Error("written behind a hole")
	}
}

// TestWriteFails: a record that the disk did not take was not written, whether or not the next sync has anything to do.
func TestWriteFails(t *testing.T) {
	for _, sync := range []bool{false, true} {
		j, d := onBadDisk(t)
		d.full = 1
		if err := j.Append(state{Step: 2}, sync); !errors.Is(err, unix.EIO) {
			t.Fatalf("a write that failed: %v", err)
		}
		if a, h := step(t, d.cache), step(t, d.disk); a != 1 || h != 1 {
			t.Errorf("the next agent reads %d, after a crash of the host %d", a, h)
		}
		if err := j.Append(state{Step: 2}, true); err != nil {
			t.Fatal(err)
		}
		if a, h := step(t, d.cache), step(t, d.disk); a != 2 || h != 2 {
			t.Errorf("told again: the next agent reads %d, after a crash of the host %d", a, h)
		}
	}
}

// TestMendFails: what a sync did not bring is written once more until the disk takes it, and nothing comes behind it before.
func TestMendFails(t *testing.T) {
	for what, c := range map[string]struct{ syncs, writes, tries int }{"writes fail": {1, 2, 2}, "syncs fail": {2, 0, 1}} {
		j, d := onBadDisk(t)
		if err := j.Append(state{2, strings.Repeat("x", 3*block)}, false); err != nil {
			t.Fatal(err)
		}
		d.fails, d.then = c.syncs, c.writes
		for n := range c.tries {
			if err := j.Append(state{Step: 3}, true); !errors.Is(err, unix.EIO) {
				t.Fatalf("%s, try %d: %v", what, n, err)
			}
		}
		if err := j.Append(state{Step: 4}, true); err != nil {
			t.Fatal(err)
		}
		if a, h := step(t, d.cache), step(t, d.disk); a != 4 || h != 4 {
			t.Errorf("%s: the next agent reads %d, after a crash of the host %d", what, a, h)
		}
	}
}
