package sample

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// allocate sets room aside for all of a file, as QEMU does where it writes zeros and may make no holes.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
}

// TestManyPieces: of a file in more pieces than are counted the rest counts as what was seen.
func TestManyPieces(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const step, count = 64 << 10, pieces + pieces/2
	for i := range int64(count) {
		if _, err := f.WriteAt([]byte{1}, i*step); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(count * step); err != nil {
		t.Fatal(err)
	}
	if got := data(f, count*step); got < count*4000 || got > count*8192 {
		t.Errorf("%d bytes in %d pieces", got, count)
	}
}

// TestDisk: holes take nothing, text takes less than there is of it, noise all of it, and what cannot be read nothing.
func TestDisk(t *testing.T) {
	const mib = 1 << 20
	text := bytes.Repeat([]byte("what disks hold often says the same again\n"), 4*mib/42)
	var random []byte
	for len(random) < 4*mib {
		random = append(random, noise()...)
	}
	file := func(at int64, data []byte) string {
		path := filepath.Join(t.TempDir(), "disk")
		f, err := os.Create(path)
		if err == nil {
			_, err = f.WriteAt(data, at)
		}
		if err == nil {
			err = f.Truncate(100 * mib)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	aside := file(50*mib, random)
	if err := allocate(aside, 100*mib); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path        string
		link        float64
		least, most int64
	}{
		"empty":                {file(0, nil), 1e6, 0, 0},
		"text":                 {file(50*mib, text), 1e6, 1, mib},
		"text, a fast link":    {file(50*mib, text), 1e12, 3 * mib, 5 * mib},
		"text, a link unknown": {file(50*mib, text), 0, 1, mib},
		"noise":                {file(90*mib, random), 1e6, 3 * mib, 5 * mib},
		"room set aside":       {aside, 1e6, 3 * mib, 5 * mib},
		"no file":              {"/nowhere", 1e6, 0, 0},
		"no disk":              {t.TempDir(), 1e6, 0, 0},
	} {
		if holds, got := Disk(c.path, c.link); got < c.least || got > c.most || holds < got-got/100 || got == 0 && holds != 0 {
			t.Errorf("%s: %d bytes, want %d to %d", name, got, c.least, c.most)
		}
	}
}
