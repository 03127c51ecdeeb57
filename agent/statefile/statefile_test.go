package statefile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/internal/durable"
)

// TestFileBounds: what is no file, or is too large, is neither waited for nor read.
func TestFileBounds(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(large, []byte("[1]"), 0o600), os.Truncate(large, fileLimit+1)); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{pipe: "not a file", dir: "not a file", large: "larger than 16 MiB"} {
		var into any
		if err := Read(path, &into); !errors.Is(err, ErrUnread) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", path, err, words)
		}
	}
}

// kept is what a test writes down: a number that must not be negative.
type kept struct{ N int }

func (k *kept) Check() error {
	if k.N < 0 {
		return errors.New("negative")
	}
	return nil
}

// TestWrittenIsRead: what was written last is read, once it was checked; of what cannot be meant the
// file is named.
func TestWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "kept.json")
	var k kept
	if err := Read(path, &k); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrUnread) {
		t.Errorf("where there is none: %v", err)
	}
	for _, n := range []int{1, 2} {
		if err := Write(path, kept{n}); err != nil {
			t.Fatal(err)
		}
		if err := Read(path, &k); err != nil || k.N != n {
			t.Errorf("wrote %d, read %d, %v", n, k.N, err)
		}
	}
	if err := Write(path, func() {}); err == nil {
		t.Error("wrote what is no JSON")
	}
	if err := Write(path, strings.Repeat("1", fileLimit)); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("wrote what is not read: %v", err)
	}
	if err := Read(path, &k); err != nil || k.N != 2 {
		t.Errorf("after a write that failed: %d, %v", k.N, err)
	}
	if err := Write(path, kept{-1}); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, &k); !errors.Is(err, ErrUnread) || !strings.Contains(err.Error(), path+": negative") {
		t.Errorf("what cannot be meant: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDiskFull: what the disk does not take leaves the file as it was, and nothing beside it.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	if err := Write(path, kept{1}); err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit // of the size of files that this process writes; Go ignores SIGXFSZ
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	full := Write(path, kept{2})
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(full, unix.EFBIG) || !strings.Contains(full.Error(), path) {
		t.Errorf("written past the limit: %v", full)
	}
	var k kept
	if err := Read(path, &k); err != nil || k.N != 1 {
		t.Errorf("read %d, %v", k.N, err)
	}
	if left := Half(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSweep: what was cut off in writing goes, and nothing else.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a-b]")
	stays := map[string]bool{
		"detours.json": true, ".tmp-1": false, "guests/web.json": true, "guests/.tmp-2": false, "guests/.hidden": true, "guests/web/.tmp-3": true,
	}
	for name := range stays {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Sweep(dir); err != nil {
			t.Error(err)
		}
	}
	for name, want := range stays {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Sweep(filepath.Join(dir, "none")); err != nil {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

func TestDirectlyIn(t *testing.T) {
	for path, want := range map[string]bool{
		"/run/godwit/guests/web-3": true, "/run/godwit/guests": false, "/run/godwit/guests/web-3/x": false,
		"guests/web-3": false, "/run/guests/../guests/web-3": false, "/run/godwit/guests/": false,
	} {
		if got := DirectlyIn(path, "guests"); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// TestFiles: which there are is told of any directory, or that it is not known: what is taken for none is told to nobody.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a-b]")
	if got, err := Files(dir); err != nil || len(got) != 0 {
		t.Errorf("without a directory: %v, %v", got, err)
	}
	one := filepath.Join(dir, "one.json")
	if err := errors.Join(Write(one, 1), os.WriteFile(filepath.Join(dir, durable.Half+"x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := Files(dir); err != nil || !slices.Equal(got, []string{one}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Files(one); err == nil {
		t.Errorf("a file for a directory: %v", got)
	}
}
