package lab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Files of a run's output directory.
const (
	jsonFile = "report.json"
	htmlFile = "report.html"
)

// MakeOut makes an output directory, or takes one that is there. Where everybody may make one, as in /tmp, it has to be
// ours, and so has what it is in, up to where we work: whose that is leads what we write where he likes. On error
// nothing was made, but where a disk failed.
func MakeOut(dir string) error {
	if err := ourOut(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// ourOut says why an output directory is not to be written to, as MakeOut tells.
func ourOut(dir string) error {
	whole, err := filepath.Abs(dir) // with a slash at its end it would be where it leads
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	above, err := ledByNobody(here, whole)
	if err != nil {
		return err
	}
	if above, err = filepath.EvalSymlinks(above); err != nil {
		return err
	}
	if here, err = filepath.EvalSymlinks(here); err != nil {
		return err
	}
	_, err = ledByNobody(here, above)
	return err
}

// ledByNobody says where somebody else may lead us on the way to path, from here where it is below. It returns the last
// directory of that way that is there.
func ledByNobody(here, path string) (above string, err error) {
	above = "/"
	if rest, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rest) {
		above, path = here, rest
	}
	for _, name := range strings.Split(path, "/") {
		next := filepath.Join(above, name)
		in, err := os.Stat(above)
		if err != nil {
			return "", err
		}
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return above, nil
		}
		if err != nil {
			return "", err
		}
		owner := int(info.Sys().(*syscall.Stat_t).Uid)
		if in.Mode()&fs.ModeSticky != 0 && owner != 0 && owner != os.Geteuid() && os.Getenv("SUDO_UID") != strconv.Itoa(owner) {
			return "", fmt.Errorf("%s belongs to user %d, who may have it lead anywhere; name another by --out", next, owner)
		}
		above = next
	}
	return above, nil
}

// clearOut makes the output directory, finds out that it can be written to, and removes
// the reports of a run before: one that does not get far must not leave another's.
func clearOut(dir string) error {
	if err := MakeOut(dir); err != nil {
		return err
	}
	if err := DropReports(dir); err != nil {
		return err
	}
	return keep(filepath.Join(dir, jsonFile), func(w io.Writer) error {
		if _, err := w.Write([]byte("{}")); err != nil { // a full disk shows here
			return err
		}
		return errTried
	})
}

// DropReports removes the reports of a run before from an output directory, where there is one that is ours.
func DropReports(dir string) error {
	if err := ourOut(dir); err != nil {
		return err
	}
	for _, name := range []string{jsonFile, htmlFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
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
