package guests

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm"
)

// leaves is a guest that has ended, with a disk.
func leaves(t *testing.T, name string) *Guest {
	t.Helper()
	disk := filepath.Join(t.TempDir(), name+"-2-root.raw")
	if err := os.WriteFile(disk, []byte("what it wrote"), 0o600); err != nil {
		t.Fatal(err)
	}
	return New(care.Held{
		Description: config.Description{
			Name: name, Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, Start: []string{"qemu"}, Disks: []vm.Disk{{ID: "root", Path: disk, Format: "raw"}},
		},
		Dir: filepath.Join("/run/godwit/guests", name+"-2"), Epoch: 2, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}},
	}, nil)
}

// TestEndedIsKept: what a guest that has ended is started again by is kept until one of its name is under care, however
// it comes to be, or somebody says that it is elsewhere; and not beside another that is here by then.
func TestEndedIsKept(t *testing.T) {
	for name, over := range map[string]func(s *Set, g *Guest) error{
		"it is here again": func(s *Set, _ *Guest) error { return s.Save(leaves(t, "web")) },
		"it is elsewhere":  func(s *Set, _ *Guest) error { return s.DropEnded("web") },
	} {
		s := In(filepath.Join(t.TempDir(), "guests"))
		g := leaves(t, "web")
		at := time.Now()
		if err := s.KeepEnded(g, "powered off", at); err != nil {
			t.Fatal(err)
		}
		e, err := s.Ended("web")
		if err != nil || !e.At.Equal(at) || e.Why != "powered off" || e.Held.Epoch != 2 || len(s.AllEnded()) != 1 {
			t.Fatalf("%s: %+v, %v, in all %v", name, e, err, s.AllEnded())
		}
		if lacks, changed := LacksDisk(e); lacks != "" || changed != "" {
			t.Errorf("%s: %s, %s", name, lacks, changed)
		}
		if err := over(s, g); err != nil {
			t.Fatal(err)
		}
		_, err = s.Ended("web")
		agenttest.Refused(t, name, err, migration.CodeUnknownGuest, "nothing is kept of one of that name")
		if err := s.KeepEnded(g, "late", at); err != nil || (len(s.AllEnded()) == 0) != (name == "it is here again") {
			t.Errorf("%s, and the earlier one is kept: %v, %v", name, s.AllEnded(), err)
		}
	}
}

// TestEndedOfANameAlone: of a guest of whom nothing is known any more nothing is kept, and what was stays.
func TestEndedOfANameAlone(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	if err := s.KeepEnded(leaves(t, "web"), "powered off", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.KeepEnded(New(care.Held{Description: config.Description{Name: "web"}}, nil), "", time.Now()); err == nil {
		t.Error("what nobody could start is kept")
	}
	if e, err := s.Ended("web"); err != nil || e.Why != "powered off" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestEndedIsNoPath: a name that is none is no file's.
func TestEndedIsNoPath(t *testing.T) {
	dir := t.TempDir()
	s := In(filepath.Join(dir, "guests"))
	if err := os.WriteFile(filepath.Join(dir, "web.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Ended("../web")
	agenttest.Refused(t, "a path", err, migration.CodeUnknownGuest, "nothing is kept")
}

// TestEndedAreBounded: the oldest go.
func TestEndedAreBounded(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	for n := range mostEnded + 1 {
		g := leaves(t, fmt.Sprint("web", n))
		if err := s.KeepEnded(g, "powered off", time.Now()); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1e9+int64(n), 0)
		if err := os.Chtimes(s.endedPath(g.Name()), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.KeepEnded(leaves(t, "last"), "powered off", time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]bool{"web0": false, "web1": false, "web2": true, "web100": true, "last": true} {
		if _, err := s.Ended(name); (err == nil) != kept {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLacksDisk: a disk that is gone, or that the start command would open as what it is not, bars a guest; one that
// was written to since, or is another file of its name, is said.
func TestLacksDisk(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(path string, e *care.Ended) error
		lacks, changed string
	}{
		"nothing": {func(string, *care.Ended) error { return nil }, "", ""},
		"gone":    {func(path string, _ *care.Ended) error { return os.Remove(path) }, "its disk root: ", ""},
		"qcow2": {func(_ string, e *care.Ended) error {
			e.Held.Description.Disks[0].Format = "qcow2"
			return nil
		}, "is qcow2, and its start command opens raw ones", ""},
		"written to": {func(path string, _ *care.Ended) error {
			return errors.Join(os.WriteFile(path, []byte("WHAT it wrote"), 0o600), os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)))
		}, "", "is not as it left it: last written 2001-09-09 01:46:40 UTC"},
		"another, of its time and size": {func(path string, e *care.Ended) error {
			other := path + ".other"
			return errors.Join(os.WriteFile(other, []byte("what IT wrote"), 0o600), os.Chtimes(other, time.Time{}, e.Disks[0].Written), os.Rename(other, path))
		}, "", "is not as it left it"},
		"no file": {func(path string, _ *care.Ended) error {
			return errors.Join(os.Remove(path), os.Symlink("/dev/null", path))
		}, "", "is no file"},
	} {
		s := In(filepath.Join(t.TempDir(), "guests"))
		g := leaves(t, "web")
		if err := s.KeepEnded(g, "", time.Now()); err != nil {
			t.Fatal(err)
		}
		e, err := s.Ended("web")
		if err == nil {
			err = c.change(g.Held().Description.Disks[0].Path, &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		lacks, changed := LacksDisk(e)
		if !strings.Contains(lacks, c.lacks) || (lacks == "") != (c.lacks == "") || !strings.Contains(changed, c.changed) || (changed == "") != (c.changed == "") {
			t.Errorf("%s: %q, %q; want %q, %q", name, lacks, changed, c.lacks, c.changed)
		}
	}
}
