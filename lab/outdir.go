package lab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Files of a run's output directory.
const (
	jsonFile = "report.json"
	htmlFile = "report.html"
)

// MakeOut makes an output directory, or takes one that is there. Where everybody may make one, as in /tmp, it has to be ours: whose it is
// leads what we write where he likes.
func MakeOut(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dir = filepath.Clean(dir) // with a slash it would be where it leads
	above, err := os.Stat(filepath.Dir(dir))
	if err != nil || above.Mode()&fs.ModeSticky == 0 {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who may have it lead anywhere; name another by --out", dir, owner)
	}
	return nil
}

// clearOut makes the output directory, finds out that it can be written to, and removes
// the reports of a run before: one that does not get far must not leave another's.
func clearOut(dir string) error {
	if err := MakeOut(dir); err != nil {
		return err
	}
	for _, name := range []string{jsonFile, htmlFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return keep(filepath.Join(dir, jsonFile), func(w io.Writer) error {
		if _, err := w.Write([]byte("{}")); err != nil { // a full disk shows here
			return err
		}
		return errTried
	})
}

var errTried = errors.New("tried only")

// keep writes a file whole or not at all. A try that ends with errTried leaves none, and
// is no failure.
func keep(path string, write func(io.Writer) error) error {
	f, err := os.Create(path + ".part")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return nil
	}
	os.Remove(f.Name()) //nolint:errcheck // the cause is told
	if errors.Is(err, errTried) {
		return nil
	}
	return fmt.Errorf("write report %s: %w", path, err)
}
