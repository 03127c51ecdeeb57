// Package statefile is the files in which an agent keeps what it knows, for later agents: JSON that is
// replaced whole, in one act that survives a crash. They may be damaged, or changed by hand, so what is
// in them is checked before it is used: names that become paths and devices, indices, lists. A file
// that cannot be meant is said in one line, and never guessed around.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"godwit/internal/durable"
)

// fileLimit bounds a file, bytes: what is longer is not read, and so not written.
const fileLimit = 16 << 20

var errLong = fmt.Errorf("larger than %d MiB", fileLimit>>20)

// ErrUnread says that there is a file, and that it cannot be read or meant.
var ErrUnread = errors.New("mend the file, or move it away")

// Read is the inverse of Write. Where value has a method Check() error, what was read is checked by it.
// The error is os.ErrNotExist where there is no file, and else ErrUnread, of one line that names
// the file; value is not to be used then.
func Read(path string, value any) error {
	err := readInto(path, value)
	if c, ok := value.(interface{ Check() error }); err == nil && ok {
		err = c.Check()
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("read %s: %w; %w", path, err, ErrUnread)
}

func readInto(path string, value any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe in its place must not be waited for
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, errors.New("not a file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, fileLimit+1))
	if err != nil {
		return err
	}
	if len(data) > fileLimit {
		return errLong
	}
	return json.Unmarshal(data, value)
}

// Write replaces path by value, and makes its directory if there is none. On success a host that loses its power has
// the new one; on error the file is as it was, or the new one where only its directory was not synced.
func Write(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && len(data) > fileLimit {
		err = errLong
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := durable.WriteFile(path, data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Sweep removes what processes that were killed as they wrote have left in dir, and in the directories in it. It is for
// who alone writes there, before it does.
func Sweep(dir string) error {
	var errs []error
	for _, path := range Half(dir) {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

// Half are the paths of what is not written yet, or never will be, in dir and in the directories in it.
func Half(dir string) (paths []string) {
	for _, pattern := range []string{durable.Half + "*", filepath.Join("*", durable.Half+"*")} {
		paths = append(paths, Matching(dir, pattern)...)
	}
	return paths
}

// Matching are the paths of what is in dir by a pattern of fs.Glob, which must be a right one. dir itself is none,
// whatever it is called.
func Matching(dir, pattern string) []string {
	names, _ := fs.Glob(os.DirFS(dir), pattern) // no error but of a wrong pattern
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names
}

// Files are the paths of those in dir that end in .json, by name; none where there is no dir. On error which there are
// is not known.
func Files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".json" {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// Remove removes path, where it is, for good: it does not come back with a host that loses its power. On error it may
// be gone all the same.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// DirectlyIn says whether path is that of something directly in a directory named dir, without a way
// around: such a path from a file may be removed.
func DirectlyIn(path, dir string) bool {
	return filepath.IsAbs(path) && filepath.Clean(path) == path && filepath.Base(filepath.Dir(path)) == dir
}
