package lab

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"godwit/internal/need"
	"godwit/lab/report"
)

// A run that does not get far leaves no report of another run; where none could be kept,
// that is known before anything is built.
func TestClearOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	if err := clearOut(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{jsonFile, htmlFile, "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("of a run before"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := clearOut(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "notes.txt" {
		t.Errorf("left %v, %v", left, err)
	}
	for _, wrong := range []string{filepath.Join(dir, "notes.txt"), "/proc"} {
		if clearOut(wrong) == nil {
			t.Errorf("%s is taken for a directory that can be written to", wrong)
		}
	}
}

// Where everybody may make a directory, somebody else's is not written to: its links would lead what is written to
// files of ours.
func TestOutputIsOurOwn(t *testing.T) {
	need.Root(t)
	tmp, own, theirs := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Chmod(tmp, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(theirs, 65534, 65534), os.Mkdir(filepath.Join(tmp, "theirs"), 0o755), os.Chown(filepath.Join(tmp, "theirs"), 65534, 65534),
		os.Symlink(own, filepath.Join(tmp, "link")), os.Lchown(filepath.Join(tmp, "link"), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	for dir, ok := range map[string]bool{
		filepath.Join(tmp, "new"): true, filepath.Join(tmp, "theirs"): false, filepath.Join(tmp, "link") + "/": false,
		theirs: true, // made by who may become root, as by sudo, and by nobody else
	} {
		if err := MakeOut(dir); (err == nil) != ok {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestOutputBelowAnothers: below somebody else's nothing is made either, in a directory in which everybody may make
// one, wherever links lead.
func TestOutputBelowAnothers(t *testing.T) {
	need.Root(t)
	tmp, own := t.TempDir(), t.TempDir()
	theirs, ours := filepath.Join(tmp, "theirs"), filepath.Join(tmp, "ours")
	if err := errors.Join(os.Chmod(tmp, 0o777|fs.ModeSticky), os.Mkdir(theirs, 0o755), os.Chown(theirs, 65534, 65534), os.Mkdir(ours, 0o755),
		os.Symlink(theirs, filepath.Join(own, "link")), os.WriteFile(filepath.Join(own, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for dir, ok := range map[string]bool{
		filepath.Join(ours, "x", "y"): true, filepath.Join(theirs, "x"): false, filepath.Join(theirs, "x", "y"): false, filepath.Join(own, "link", "x"): false,
		filepath.Join(own, "file", "x"): false, filepath.Join(own, "file"): false,
	} {
		if err := MakeOut(dir); (err == nil) != ok {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if left, err := os.ReadDir(theirs); err != nil || len(left) > 0 {
		t.Errorf("made: %v, %v", left, err)
	}
	t.Chdir(tmp)
	if err := MakeOut(filepath.Join("theirs", "x")); err == nil {
		t.Error("below another's, seen from here, it is made")
	}
	t.Chdir(theirs) // as a clone of somebody's that root builds and tries: he leads us anyway, by what we run here
	for _, dir := range []string{"x", filepath.Join("y", "z"), filepath.Join(theirs, "v")} {
		if err := MakeOut(dir); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(tmp, "others"), 0o755), os.Chown(filepath.Join(tmp, "others"), 65533, 65533), os.Symlink(filepath.Join(tmp, "others"), "link")); err != nil {
		t.Fatal(err)
	}
	if err := MakeOut(filepath.Join("link", "x")); err == nil {
		t.Error("below another's, by a link from here, it is made")
	}
	t.Chdir(own)
	t.Setenv("SUDO_UID", "65534") // who may become root leads us nowhere
	if err := MakeOut(filepath.Join(theirs, "x")); err != nil {
		t.Error(err)
	}
}

// A report is there whole or not at all.
func TestReportsAreWhole(t *testing.T) {
	dir := t.TempDir()
	full := errors.New("no space left")
	err := keep(filepath.Join(dir, jsonFile), func(w io.Writer) error {
		w.Write([]byte(`{"half`)) //nolint:errcheck // the other half fails
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	r := &run{opts: Options{Out: dir}}
	if err := r.write(&report.Report{Scenario: "x"}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("wrote %v, %v", left, err)
	}
}
