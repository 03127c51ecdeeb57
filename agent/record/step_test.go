package record

import (
	"testing"
	"time"

	"godwit/migration"
)

// TestClockSteppedMeanwhile: what a report says of how long something took is what it took, though the clock was set by hours while the
// migration was under way.
func TestClockSteppedMeanwhile(t *testing.T) {
	for _, by := range []time.Duration{0, 3 * time.Hour, -3 * time.Hour} {
		now := time.Now()
		r := New("paris", migration.Plan{ID: "m-00000001"}, now)
		r.from -= int64(by) // what the clock showed as it began: it was stepped since
		r.Edit(func(rep *Report) { rep.Requested = r.from })
		at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
		r.Enter(migration.Check, at(0))
		r.Enter(migration.Switch, at(10))
		r.Edit(func(rep *Report) {
			rep.Paused = r.Stamp(at(11))
			rep.LastTick, rep.FirstTick = &Tick{N: 1, At: r.Stamp(at(11))}, &Tick{N: 2, At: r.Stamp(at(12))}
		})
		r.Took(StepStop, at(10))
		r.MomentAt(StepStart, at(12))
		r.End(migration.Completed, nil, at(20))
		rep := r.Snapshot()
		for i, took := range []time.Duration{10 * time.Second, 10 * time.Second} {
			if span := rep.Phases[i]; time.Duration(span.End-span.Start) != took {
				t.Errorf("stepped by %v: %s took %v, not %v", by, span.Name, time.Duration(span.End-span.Start), took)
			}
		}
		if rep.Phases[0].Start != rep.Requested {
			t.Errorf("stepped by %v: check began %v after the request", by, time.Duration(rep.Phases[0].Start-rep.Requested))
		}
		if total := time.Duration(rep.Ended - rep.Requested); total != 20*time.Second {
			t.Errorf("stepped by %v: it took %v in all, not 20 s", by, total)
		}
		if stood, known := rep.VMDowntime(); !known || stood != time.Second {
			t.Errorf("stepped by %v: the guest stood still for %v, not a second", by, stood)
		}
		for _, e := range r.events {
			if e.At < rep.Requested || e.At > rep.Requested+int64(time.Hour) {
				t.Errorf("stepped by %v: %s %s is %v after the request", by, e.Kind, e.Phase, time.Duration(e.At-rep.Requested))
			}
		}
	}
}
