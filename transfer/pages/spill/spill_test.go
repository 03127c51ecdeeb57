package spill_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/transfer/pages"
	"godwit/transfer/pages/spill"
)

func TestFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	f, err := spill.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 1<<20); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("directory has %v, error %v", entries, err)
	}
}

// A disk that is full is an error of Put, and stays one.
func TestFullDisk(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	f, err := spill.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var memory spill.Memory
	defer memory.Close()
	store := pages.New(1000, pages.NewArena(4*pages.Size, memory.Grow, f))
	store.End()
	page := bytes.Repeat([]byte{1}, pages.Size)
	put := uint64(0)
	for err == nil && put < 1000 {
		err = store.Put(put, page)
		put++
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("put %d pages into 4 of memory and 16 of disk: %v", put, err)
	}
	if put < 4+16 {
		t.Errorf("only %d pages found room", put-1)
	}
	if _, err := store.Take(64); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("take after that: %v", err)
	}
}

// TestMemoryGoes: what an arena had outside of the heap, as much as a guest has, is the host's again when it is closed.
func TestMemoryGoes(t *testing.T) {
	const size = 256 << 20 // of which no page is touched: nothing else is mapped in all of such a hole
	var m spill.Memory
	var pieces [][]byte
	for range 2 {
		piece, err := m.Grow(size)
		if err != nil || len(piece) != size {
			t.Fatalf("%d bytes, %v", len(piece), err)
		}
		pieces = append(pieces, piece)
	}
	for range 2 { // it may be closed again
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, piece := range pieces {
		if err := unix.Msync(piece, unix.MS_ASYNC); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("piece %d is mapped still: %v", i, err)
		}
	}
	if _, err := m.Grow(-1); err == nil {
		t.Error("less than nothing was mapped")
	}
}
