package guests

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/care"
)

// came is a guest that has ended, and which that migration brought.
func came(by string) *Guest {
	g := leaves("web")
	g.Remember(func(h *care.Held) {
		h.By, h.Unheard = by, &care.Unheard{Migration: "m-00000001", From: "oslo"}
	})
	return g
}

// TestEndedUnheard: of a guest that ended, and that its source may have again, is kept by which migration it came,
// until it is heard that the source has it not, or that it has; of another migration nothing is heard. So it is of one
// that could not be kept yet, and of one of which an older file does not say by which it is here.
func TestEndedUnheard(t *testing.T) {
	for name, c := range map[string]struct {
		by   string
		full bool
	}{"kept": {by: "m-00000001"}, "not kept yet": {"m-00000001", true}, "of a file of before": {by: ""}} {
		for _, back := range []bool{false, true} {
			s := In(filepath.Join(t.TempDir(), "guests"))
			g := came(c.by)
			err := s.Save(g)
			if c.full {
				err = errors.Join(err, os.WriteFile(s.endedDir(), nil, 0o600))
			}
			if kept, kerr := s.ForgetEnded(g, "it powered off", time.Now()); err != nil || kept == c.full || (kerr == nil) == c.full {
				t.Fatalf("%s: kept %v, %v, %v", name, kept, err, kerr)
			}
			if was, err := s.DropEndedBy("web", "m-00000002"); was || err != nil || s.HearEnded("web", "m-00000002") != nil || s.IsUnheardEnded("web", "m-00000002") || !s.IsUnheardEnded("web", "m-00000001") {
				t.Errorf("%s: another migration: dropped %v, %v", name, was, err)
			}
			if c.full {
				if err := os.Remove(s.endedDir()); err != nil { // there is room again, and it is not tried yet
					t.Fatal(err)
				}
			}
			var was bool
			if back {
				was, err = s.DropEndedBy("web", "m-00000001")
			} else {
				err = s.HearEnded("web", "m-00000001")
			}
			if was != back || err != nil || s.IsUnheardEnded("web", "m-00000001") {
				t.Errorf("%s: dropped %v, want %v, %v", name, was, back, err)
			}
			err = s.CatchUp()
			all, eerr := s.Ended()
			if err != nil || eerr != nil || (len(all) == 0) != back || len(all) == 1 && (all[0].Unheard != nil || all[0].By != c.by || all[0].Epoch != 2) {
				t.Errorf("%s, it is back: %v; kept %+v, %v, %v", name, back, all, err, eerr)
			}
			if held, errs := s.Remembered(); len(held) > 0 || len(errs) > 0 {
				t.Errorf("%s: left %v, %v", name, held, errs)
			}
		}
	}
}

// TestUnheardEnded: the next agent knows of which it is to be asked, also while one of its name is waited for.
func TestUnheardEnded(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	ends(t, s, leaves("db"), time.Now())
	ends(t, s, came("m-00000001"), time.Now())
	s = In(s.dir)
	s.ExpectAgain(leaves("web"))
	if all, err := s.UnheardEnded(); err != nil || len(all) != 1 || all[0].Description.Name != "web" || all[0].Unheard.From != "oslo" {
		t.Errorf("%+v, %v", all, err)
	}
	if names := endedNames(t, s); len(names) != 1 || names[0] != "db" {
		t.Errorf("told are %v", names)
	}
}

// TestEndedBeforeItIsWrittenDown: a guest that was to come under care, and ended before that was written down, is kept
// as any other.
func TestEndedBeforeItIsWrittenDown(t *testing.T) {
	s := In(filepath.Join(t.TempDir(), "guests"))
	g := came("m-00000001")
	s.ExpectAgain(g)
	if kept, err := s.ForgetEnded(g, "it powered off", time.Now()); !kept || err != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	s.Settled(g)
	if names := endedNames(t, s); len(names) != 1 {
		t.Errorf("told are %v", names)
	}
}

// TestEndedTwice: when and why a guest ended stays as it was seen first, however often that end is told; what it was is
// as it is known last. Of another stay it is another end.
func TestEndedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		by    string
		epoch uint64
		same  bool
	}{"again": {"m-00000001", 2, true}, "by another migration": {"m-00000002", 2, false}, "by a later right": {"m-00000001", 3, false}} {
		s := In(filepath.Join(t.TempDir(), "guests"))
		first, g := time.Unix(1e9, 0), came(c.by)
		ends(t, s, came("m-00000001"), first)
		g.Remember(func(h *care.Held) { h.Epoch, h.Description.Disks[0].Path = c.epoch, "/state/disks/aside" })
		s.ExpectAgain(g)
		if kept, err := s.ForgetEnded(g, "a person gave it up", first.Add(time.Hour)); !kept || err != nil {
			t.Fatal(name, kept, err)
		}
		s.Settled(g)
		all, err := s.Ended()
		if err != nil || len(all) != 1 || all[0].At.Equal(first) != c.same || (all[0].Why == "it powered off") != c.same || all[0].Description.Disks[0].Path != "/state/disks/aside" {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}
