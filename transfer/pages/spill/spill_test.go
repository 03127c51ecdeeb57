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
