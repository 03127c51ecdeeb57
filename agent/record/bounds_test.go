package record

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
)

// TestRecordIsBounded: a migration that is repaired forward for days, and says each time why it must be, does not grow
// with each try. How it began, how it goes on and what it comes to is kept.
func TestRecordIsBounded(t *testing.T) {
	r := New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
	r.Took(StepStop, time.Now())
	const tries = EventsKept + 500
	for n := range tries {
		r.Note(fmt.Sprintf("try %d", n))
		r.Took(fmt.Sprintf("step %d", n), time.Now())
		r.Moment(fmt.Sprintf("moment %d", n))
	}
	rep := r.Snapshot()
	if n := len(rep.Notes); n > mostNotes || rep.Notes[0] != "try 0" || rep.Notes[n-1] != fmt.Sprintf("try %d", tries-1) {
		t.Errorf("%d notes, %q to %q", n, rep.Notes[0], rep.Notes[n-1])
	}
	if n := len(rep.Critical); n > mostSteps || rep.Critical[0].Name != StepStop || rep.Critical[n-1].Name != fmt.Sprintf("moment %d", tries-1) {
		t.Errorf("%d steps, %q to %q", n, rep.Critical[0].Name, rep.Critical[n-1].Name)
	}
	r.Event(migration.MigrationDone)
	r.End(migration.Completed, nil, time.Now())
	events := r.Watch(t.Context(), 0).Events
	if n := len(events); n > EventsKept+2 || events[n-2].Name != migration.MigrationDone || events[n-1].Kind != "outcome" || events[n-1].N != n {
		t.Errorf("%d events, the last %+v", n, events[n-1])
	}
}

// TestWithOne: of a list that is too long already, as one that another host's was put to, as many are left out as are
// too many.
func TestWithOne(t *testing.T) {
	for had, want := range map[int]string{0: "[9]", 3: "[0 1 2 9]", 4: "[0 1 3 9]", 6: "[0 1 5 9]"} {
		var all []int
		for n := range had {
			all = append(all, n)
		}
		if got := fmt.Sprint(withOne(all, 9, 4)); got != want {
			t.Errorf("of %d: %s, want %s", had, got, want)
		}
	}
}

// TestLongCopyIsFollowedToItsEnd: who watches a copy that takes a week hears how far it is until its end, of a short
// one each line; all is kept.
func TestLongCopyIsFollowedToItsEnd(t *testing.T) {
	for took, most := range map[time.Duration]time.Duration{5 * time.Minute: 200 * time.Millisecond, 12 * time.Hour: 30 * time.Second, 7 * 24 * time.Hour: 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
			every := max(200*time.Millisecond, took/200_000) // as whoever copies looks; of a week a test has less time
			for begun := time.Now(); time.Since(begun) < took; time.Sleep(every) {
				r.Progress(1)
			}
			events := r.Watch(t.Context(), 0).Events
			last := time.Since(time.Unix(0, events[len(events)-1].At))
			if len(events) >= EventsKept || last > most || most == every && len(events) != int(took/every) {
				t.Errorf("%v: %d lines, the last %v before the end", took, len(events), last)
			}
		})
	}
}
