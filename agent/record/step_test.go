package record

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"godwit/internal/clock"
	"godwit/migration"
)

// TestClockSteppedMeanwhile: what a report says of how long something took is what it took, though the clock was set by
// hours while the migration was under way.
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
		if off := time.Duration(rep.Stepped) - by; off.Abs() > time.Minute {
			t.Errorf("stepped by %v: it says by %v", by, time.Duration(rep.Stepped))
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

// TestClockSteppedBetweenAgents: the record that the next agent goes on with is by the clock as it went when the
// migration began, unless the host has booted anew since.
func TestClockSteppedBetweenAgents(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001"}
	for _, booted := range []bool{false, true} {
		now, by := time.Now(), int64(3*time.Hour)
		first := New("paris", plan, now)
		first.from, first.report.Booted = first.from-by, first.report.Booted-by // what the clock showed before it was stepped
		if booted {
			first.report.Boot = "another"
		}
		rep := first.Snapshot()
		kept, err := json.Marshal(rep.Anew(plan)) // as before the switch
		if err != nil {
			t.Fatal(err)
		}
		next := New("paris", plan, now)
		before := next.Stamp(now)
		next.Recall(kept)
		want := first.Stamp(now)
		if booted {
			want = before
		}
		if off := time.Duration(next.Stamp(now) - want).Abs(); off > time.Minute {
			t.Errorf("host booted meanwhile: %v: the next agent's times are off by %v", booted, off)
		}
		if rep := next.Snapshot(); rep.Boot != clock.Boot() || time.Duration(rep.Booted+int64(clock.SinceBoot())-next.Now()).Abs() > time.Minute {
			t.Errorf("host booted meanwhile: %v: what the next agent keeps is by another clock than its times", booted)
		}
	}
}

// TestClockSteppedSinceItEnded: what is told of a migration that ended under an earlier agent is by the clock by which
// its report is.
func TestClockSteppedSinceItEnded(t *testing.T) {
	for _, booted := range []bool{false, true} {
		s := NewStore("paris", t.TempDir(), slog.New(slog.DiscardHandler))
		rec := New("paris", migration.Plan{ID: "m-00000001", Guest: "web"}, time.Now())
		rec.End(migration.Completed, nil, time.Now())
		rep, by := rec.Snapshot(), time.Duration(0)
		if rep.Booted -= int64(3 * time.Hour); booted {
			rep.Boot = "another"
		} else {
			by = 3 * time.Hour
		}
		if err := s.Write("m-00000001.json", func() Report { return rep }); err != nil {
			t.Fatal(err)
		}
		kept, err := s.Kept("m-00000001")
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Duration(rec.Now()-kept.Now()) - by; off.Abs() > time.Minute {
			t.Errorf("host booted since: %v: what is told is off by %v", booted, off)
		}
	}
}
