package agent

import (
	"path/filepath"
	"testing"
	"time"

	"godwit/migration"
)

// TestUndoWithoutQEMU: an agent that was started again may find that the guest's QEMU
// is gone. What it has to undo ends all the same.
func TestUndoWithoutQEMU(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{
		a: &Agent{config: &Config{Host: "paris"}}, plan: plan, work: &sourceWork{},
		guest: &Guest{Held: Held{Description: Description{Name: "web"}}}, rec: newRecord("paris", plan, time.Now()),
	}
	if err := m.resume(t.Context()); err == nil {
		t.Error("a guest without QEMU was said to run on")
	}
	if err := m.undoCopy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.undoSeed(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLandingOfAGuestThatEnded: a destination whose guest has ended does not wait for it
// for ever, and keeps nothing but its disks.
func TestLandingOfAGuestThatEnded(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{config: &Config{Host: "rome", State: dir}, guests: &guests{dir: filepath.Join(dir, "guests"), byName: map[string]*Guest{}}}
	var err error
	if a.detours, err = loadDetours(filepath.Join(dir, "detours.json"), Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	g := &Guest{Held: Held{Description: Description{Name: "web"}, Dir: filepath.Join(dir, "web-2")}}
	if err := a.guests.keep(g); err != nil {
		t.Fatal(err)
	}
	m := &incoming{a: a, plan: plan, rec: newRecord("rome", plan, time.Now()), work: &destinationWork{guest: g}}
	for _, e := range []migration.Effect{migration.Adopt, migration.Leave} {
		if err := m.perform(t.Context(), e); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	if _, err := a.guests.find("web"); err == nil {
		t.Error("it is still under care")
	}
	if notes := m.rec.snapshot().Notes; len(notes) != 1 {
		t.Errorf("notes %q: want one that it ended", notes)
	}
}
