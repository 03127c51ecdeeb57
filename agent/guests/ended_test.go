package guests

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm"
)

// leaves is a guest that has ended.
func leaves(name string) *Guest {
	return New(care.Held{
		Description: config.Description{
			Name: name, Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}, Start: []string{"qemu"},
			Disks: []vm.Disk{{ID: "root", Path: "/state/disks/" + name + "-2-root.raw", Format: "raw"}},
		},
		Dir: filepath.Join("/run/godwit/guests", name+"-2"), Epoch: 2, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}},
	}, nil)
}

// ends has a guest end that was under care, and says whether what it was is kept.
func ends(t *testing.T, s *Set, g *Guest, now time.Time) bool {
	t.Helper()
	if err := s.Save(g); err != nil {
		t.Fatal(err)
	}
	kept, err := s.ForgetEnded(g, "it powered off", now)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func endedNames(t *testing.T, s *Set) (names []string) {
	t.Helper()
	all, err := s.Ended()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Description.Name)
	}
	return names
}

// TestEndedIsKept: what a guest was that has ended is kept as it leaves the care, in one act, until one of its name is
// under care again; whoever writes down late what is known of the one that ended takes nothing away.
func TestEndedIsKept(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	g, at := leaves("web"), time.Now()
	if !ends(t, s, g, at) || s.SaveIfHere(g) != nil || s.CatchUp() != nil {
		t.Fatal("not kept")
	}
	all, err := s.Ended()
	if err != nil || len(all) != 1 || !all[0].At.Equal(at) || all[0].Why != "it powered off" || all[0].Description.Disks[0].Path != "/state/disks/web-2-root.raw" || all[0].Addresses[0].Home != "rome" {
		t.Fatalf("%+v, %v", all, err)
	}
	if held, errs := s.Remembered(); len(held) > 0 || len(errs) > 0 || s.Has(g) {
		t.Errorf("it is under care: %v, %v", held, errs)
	}
	if err := s.Save(leaves("web")); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.endedDir()); len(left) > 0 {
		t.Errorf("it is under care again, and left is %v", left)
	}
}

// TestEndedIsNotKept: nothing is kept where another of its name is here by then or comes, nor of our images.
func TestEndedIsNotKept(t *testing.T) {
	for name, before := range map[string]func(s *Set, g *Guest) error{
		"of an image":      func(_ *Set, g *Guest) error { g.Remember(func(h *care.Held) { h.Description.Start = nil }); return nil },
		"another is here":  func(s *Set, _ *Guest) error { return s.Save(leaves("web")) },
		"another comes":    func(s *Set, g *Guest) error { return expectsAnother(s, g) },
		"nothing is of it": func(s *Set, g *Guest) error { return s.Forget(g) },
		"of its name's file": func(s *Set, g *Guest) error {
			return os.WriteFile(filepath.Join(s.dir, "web.json"), []byte("{"), 0o600)
		},
	} {
		s := In(filepath.Join(t.TempDir(), "guests"))
		g := leaves("web")
		if err := s.Save(g); err != nil {
			t.Fatal(err)
		}
		if name == "of its name's file" {
			s = In(s.dir) // as the agent is started
		}
		if err := before(s, g); err != nil {
			t.Fatal(name, err)
		}
		kept, err := s.ForgetEnded(g, "it powered off", time.Now())
		if left, _ := os.ReadDir(s.endedDir()); err != nil || kept || len(left) > 0 {
			t.Errorf("%s: kept %v, %v, %v", name, kept, left, err)
		}
	}
}

// expectsAnother has another guest of g's name come, as if g had left the care just then.
func expectsAnother(s *Set, g *Guest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byName, g.Name())
	other := leaves(g.Name())
	other.Remember(func(h *care.Held) { h.Dir += "3" })
	s.coming[other] = true
	return nil
}

// TestEndedAsItWasWaitedFor: a guest that was silent as its agent was started, and is gone then, is kept as any other.
func TestEndedAsItWasWaitedFor(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	if err := s.Save(leaves("web")); err != nil {
		t.Fatal(err)
	}
	s = In(s.dir)
	waited := leaves("web")
	s.ExpectAgain(waited)
	s.NoteSilent(waited.Held())
	s.Answers("web")
	if kept, err := s.ForgetEnded(leaves("web"), "its QEMU is gone", time.Now()); !kept || err != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
}

// cannotKeep has guest web end while it cannot be written down that it has.
func cannotKeep(t *testing.T) (s *Set, mend func() error) {
	t.Helper()
	s = In(filepath.Join(t.TempDir(), "guests"))
	g := leaves("web")
	if err := errors.Join(s.Save(g), os.WriteFile(s.endedDir(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.ForgetEnded(g, "it powered off", time.Now()); kept || err == nil || s.Has(g) || s.NameFree("web") != nil {
		t.Fatalf("kept %v, %v; under care %v", kept, err, s.Has(g))
	}
	return s, func() error { return os.Remove(s.endedDir()) }
}

// TestEndedCannotBeKept: where it cannot be written down that a guest has ended, as on a disk that is full, what was
// written down of the guest stays until it can be, for this agent or the next.
func TestEndedCannotBeKept(t *testing.T) {
	for why, again := range map[string]func(s *Set) error{
		"it powered off": func(s *Set) error { return s.CatchUp() },
		"its QEMU is gone": func(s *Set) error {
			next := In(s.dir)
			held, errs := next.Remembered()
			if len(held) != 1 || len(errs) > 0 {
				t.Fatalf("what was written down of it: %v, %v", held, errs)
			}
			_, err := next.ForgetEnded(New(held[0], nil), "its QEMU is gone", time.Now())
			return err
		},
	} {
		s, mend := cannotKeep(t)
		_, err := s.ForgetEnded(s.unkept["web"].of, "it ended", time.Now()) // which is known already
		if err == nil || again(s) == nil || again(s) == nil {
			t.Errorf("%s: nobody hears that it cannot be kept", why)
		}
		if err := errors.Join(mend(), again(s)); err != nil {
			t.Error(why, err)
		}
		if all, err := s.Ended(); err != nil || len(all) != 1 || all[0].Why != why {
			t.Errorf("%s: kept %+v, %v", why, all, err)
		}
		if held, errs := s.Remembered(); len(held) > 0 || len(errs) > 0 {
			t.Errorf("%s: left %v, %v", why, held, errs)
		}
	}
}

// TestEndedIsOldBeforeItIsKept: what could not be written down of a guest that ended is not, later on, where one of its
// name comes, or is here, by then; nor does what is written down of that one go.
func TestEndedIsOldBeforeItIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		then func(s *Set) error
		left int // guests that are written down
	}{
		"another came, and is gone": {func(s *Set) error {
			if was, err := s.DropEnded("web"); err != nil || !was {
				return fmt.Errorf("dropped %v, %w", was, err)
			}
			return nil
		}, 0},
		"another is being started": {func(s *Set) error { return s.Begin(leaves("web")) }, 1},
		"another is here":          {func(s *Set) error { return s.Save(leaves("web")) }, 1},
	} {
		s, mend := cannotKeep(t)
		if err := errors.Join(mend(), c.then(s), s.CatchUp()); err != nil {
			t.Error(name, err)
		}
		if names := endedNames(t, s); len(names) > 0 {
			t.Errorf("%s: kept %v", name, names)
		}
		if held, errs := s.Remembered(); len(held) != c.left || len(errs) > 0 {
			t.Errorf("%s: left %v, %v", name, held, errs)
		}
	}
}

// TestEndedOutlivesWhoDoesNotStay: what could not be kept of a guest that ended is kept once it can be, though one of its
// name was to come under care meanwhile and was let go of, as that could not be written down either. Until then what
// was written down of it stays, for the next agent, and nothing that is of the other.
func TestEndedOutlivesWhoDoesNotStay(t *testing.T) {
	for name, c := range map[string]struct {
		full func(s *Set) (room func() error) // besides what cannot be kept
		left int                              // guests that are written down, once the other is let go of
	}{
		"nothing can be written": {func(s *Set) func() error {
			away := s.dir + ".away"
			if err := errors.Join(os.Rename(s.dir, away), os.WriteFile(s.dir, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			return func() error { return errors.Join(os.Remove(s.dir), os.Rename(away, s.dir)) }
		}, 1},
		"it could be, and what is old not removed": {func(*Set) func() error { return func() error { return nil } }, 0},
	} {
		s, mend := cannotKeep(t)
		other, room := leaves("web"), c.full(s)
		other.Remember(func(h *care.Held) { h.Description.Start = []string{"other"} })
		if s.Save(other) == nil {
			t.Fatalf("%s: it is under care", name)
		}
		if s.CatchUp() == nil || len(s.unkept) != 1 {
			t.Errorf("%s: while the other is here: %v", name, s.unkept)
		}
		if err := errors.Join(room(), s.Forget(other)); err != nil {
			t.Error(name, err)
		}
		if held, _ := s.Remembered(); len(held) != c.left {
			t.Errorf("%s: written down %v", name, held)
		}
		if err := errors.Join(mend(), s.CatchUp()); err != nil {
			t.Error(name, err)
		}
		if all, err := s.Ended(); err != nil || len(all) != 1 || all[0].Why != "it powered off" || all[0].Description.Start[0] != "qemu" {
			t.Errorf("%s: kept %+v, %v", name, all, err)
		}
		if held, _ := s.Remembered(); len(held) > 0 || len(s.unkept) > 0 {
			t.Errorf("%s: left %v, %v", name, held, s.unkept)
		}
	}
}

// TestDropEnded: what was kept goes by its name, once; a name that is none is no file's.
func TestDropEnded(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	ends(t, s, leaves("web"), time.Now())
	if err := os.WriteFile(filepath.Join(s.endedDir(), "..", "db.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		was  bool
	}{{"../db", false}, {"db", false}, {"web", true}, {"web", false}} {
		if was, err := s.DropEnded(c.name); err != nil || was != c.was {
			t.Errorf("%s: %v, %v", c.name, was, err)
		}
	}
	if _, err := os.Stat(filepath.Join(s.endedDir(), "..", "db.json")); err != nil || len(endedNames(t, s)) > 0 {
		t.Errorf("left %v, %v", endedNames(t, s), err)
	}
}

// TestEndedThatStays: one that cannot be removed, though it is the oldest, has no other be tried again.
func TestEndedThatStays(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	for n := range mostEnded {
		ends(t, s, leaves(fmt.Sprintf("web%03d", n)), time.Now())
	}
	stays, at := s.endedPath("web000"), time.Unix(1e9, 0)
	if err := errors.Join(os.Remove(stays), os.MkdirAll(filepath.Join(stays, "x"), 0o700), os.Chtimes(stays, at, at)); err != nil {
		t.Fatal(err)
	}
	g := leaves("last")
	if err := s.Save(g); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.ForgetEnded(g, "it powered off", time.Now()); !kept || err == nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if held, errs := s.Remembered(); len(held) > 0 || len(errs) > 0 || s.CatchUp() != nil {
		t.Errorf("it is not forgotten: %v, %v", held, errs)
	}
}

// TestEndedAreBounded: the oldest go, and one that cannot be read hides no other.
func TestEndedAreBounded(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	for n := range mostEnded {
		name := fmt.Sprintf("web%03d", n)
		ends(t, s, leaves(name), time.Unix(1e9+int64(n), 0))
		at := time.Unix(1e9-int64(n), 0) // as of one that was written again, since it was heard of
		if err := os.Chtimes(s.endedPath(name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	ends(t, s, leaves("last"), time.Now())
	if err := os.WriteFile(s.endedPath("web001"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all := endedNames(t, s); len(all) != mostEnded-1 || all[0] != "last" || all[1] != "web002" {
		t.Errorf("%d: %v", len(all), all)
	}
}
