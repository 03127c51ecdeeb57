package record

import (
	"slices"
	"testing"
	"time"

	"godwit/migration"
)

// TestPhasesFollowEachOther: no phase ends before it began, or begins within the one before it, though a source hears
// that the guest runs, and that its connections were handed over, when both are long past.
func TestPhasesFollowEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		resumed, heard, handed int64 // s
		want                   []PhaseSpan
	}{
		"heard in time":                  {2, 2, 4, []PhaseSpan{{migration.Switch, 1, 2}, {migration.Handover, 2, 4}, {migration.Settle, 4, 9}}},
		"heard when it was done":         {2, 8, 3, []PhaseSpan{{migration.Switch, 1, 2}, {migration.Handover, 2, 3}, {migration.Settle, 3, 9}}},
		"when it ran is not known":       {0, 8, 3, []PhaseSpan{{migration.Switch, 1, 8}, {migration.Handover, 8, 8}, {migration.Settle, 8, 9}}},
		"clocks that differ by a moment": {1, 2, 0, []PhaseSpan{{migration.Switch, 1, 1}, {migration.Handover, 1, 1}, {migration.Settle, 1, 9}}},
	} {
		at := func(s int64) int64 { return s * int64(time.Second) }
		r := New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
		r.EnterAt(migration.Switch, at(1))
		r.Edit(func(rep *Report) { rep.Resumed = at(c.resumed) })
		r.EnterAt(migration.Handover, at(c.heard))
		r.EnterAt(migration.Settle, at(c.handed))
		r.EnterAt("", at(9))
		rep := r.Snapshot()
		for i := range c.want {
			c.want[i].Start, c.want[i].End = at(c.want[i].Start), at(c.want[i].End)
		}
		if !slices.Equal(rep.Phases, c.want) {
			t.Errorf("%s: %v, want %v", name, rep.Phases, c.want)
		}
		for i, e := range r.events { // those who watch hear the same
			if e.Phase != c.want[i].Name || e.At != c.want[i].Start {
				t.Errorf("%s: told %s at %v", name, e.Phase, e.At)
			}
		}
		for phase, took := range rep.Times().Phases {
			if took < 0 {
				t.Errorf("%s: %s took %v", name, phase, took)
			}
		}
	}
}
