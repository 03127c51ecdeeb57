package lab

import (
	"slices"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
)

// TestLiveDetails: what the guest writes and what waits is shown while memory is copied, and not when
// that is over.
func TestLiveDetails(t *testing.T) {
	for _, c := range []struct {
		phase migration.Phase
		what  string
		shown bool
	}{
		{migration.Copy, record.CopyOfMemory, true}, {migration.Handover, record.CopyOfMemory, false}, {migration.Settle, record.CopyOfRest, true},
	} {
		m := &move{phase: c.phase, done: make(chan struct{}), progress: record.CopyProgress{
			What: c.what, Total: 8 << 20, Remaining: 2 << 20, DataPath: &record.DataPath{Queue: 1 << 20, Waiting: 256}}}
		got := m.live(time.Now())
		if (got.Details != "") != c.shown {
			t.Errorf("%s in %s: %q", c.what, c.phase, got.Details)
		}
		if want := int64(6 << 20); c.what == record.CopyOfRest && got.Copied != want || c.phase == migration.Copy && got.Copied != want-1<<20 {
			t.Errorf("%s in %s: %d bytes are there", c.what, c.phase, got.Copied)
		}
	}
}

// TestLiveOfItsPhase: what was told of a copy is shown as what it is of, and not in a later phase, as if it went on.
func TestLiveOfItsPhase(t *testing.T) {
	for _, c := range []struct {
		phase  migration.Phase
		what   string
		shown  bool
		speeds bool
	}{
		{migration.Check, record.CopyOfMemory, false, false},
		{migration.Seed, record.CopyOfDisk, true, true}, {migration.Copy, record.CopyOfDisk, false, false},
		{migration.Copy, record.CopyOfMemory, true, true}, {migration.Switch, record.CopyOfMemory, true, false},
		{migration.Handover, record.CopyOfMemory, false, false}, {migration.Handover, record.CopyOfRest, true, true},
	} {
		m := &move{phase: c.phase, done: make(chan struct{}), progress: record.CopyProgress{What: c.what, Total: 8 << 20, Rate: 1e6, LeftS: 8}}
		got := m.live(time.Now())
		if shown := got.What != ""; shown != c.shown || shown && got.What != c.what {
			t.Errorf("%s in %s: %d bytes of %q", c.what, c.phase, got.Total, got.What)
		}
		if (got.Mbps > 0) != c.speeds || (got.Remaining > 0) != c.speeds {
			t.Errorf("%s in %s: %.1f Mbit/s, %v left", c.what, c.phase, got.Mbps, got.Remaining)
		}
	}
}

// TestLiveAgain: a migration that begins again is shown in the phase in which it is, with nothing of the try before.
// Events that an agent tells twice change nothing.
func TestLiveAgain(t *testing.T) {
	zero := time.Now()
	m := &move{from: "montreal", started: map[migration.Phase]time.Time{}, done: make(chan struct{})}
	r := aRun()
	tell := func(phases ...migration.Phase) {
		for i, p := range phases {
			r.heard(t.Context(), m, record.Event{Kind: "phase", Host: m.from, Phase: p, At: zero.Add(time.Duration(i) * time.Second).UnixNano()})
		}
	}
	all := []migration.Phase{migration.Check, migration.Seed, migration.Check}
	tell(all[:2]...)
	m.progress = record.CopyProgress{What: record.CopyOfDisk, Total: 8 << 20}
	tell(all...)
	tell(all...)
	got := m.live(zero.Add(5 * time.Second))
	if got.Phase != "check" || got.Since != 3*time.Second || !slices.Equal(got.Began, []string{"check", "seed", "check"}) {
		t.Errorf("in %s for %v, after %v", got.Phase, got.Since, got.Began)
	}
	if m.progress.What != "" {
		t.Errorf("%s of the try before is shown", m.progress.What)
	}
}
