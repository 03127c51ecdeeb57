package agent

import (
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/vm/guest"
)

// TestLastConnectionCame: when the last connection followed is on record as the guest tells it; not what cannot be so.
func TestLastConnectionCame(t *testing.T) {
	for _, c := range []struct {
		joins guest.Joins
		known bool
	}{
		{guest.Joins{Joined: 1, LastMS: 200}, true}, {guest.Joins{Joined: 1}, false}, {guest.Joins{LastMS: 200}, false},
		{guest.Joins{Joined: 1, LastMS: 3_600_000}, false}, {guest.Joins{Joined: 1, LastMS: -200}, false},
	} {
		m := landing(t, talking(t, map[string]guest.Handler{"await_join": answers(c.joins, nil)}))
		ran := time.Now().Add(-time.Second)
		m.rec.Edit(func(r *record.Report) { r.Resumed = ran.UnixNano() })
		if err := m.awaitJoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps := m.rec.Snapshot().Critical
		if known := len(steps) == 1 && steps[0].Name == record.StepCame; known != c.known {
			t.Errorf("%+v: %+v", c.joins, steps)
		} else if after := time.Unix(0, m.rec.Snapshot().Resumed).Add(800 * time.Millisecond); known && time.Unix(0, steps[0].At).Before(after) {
			t.Errorf("%+v: at %v", c.joins, time.Unix(0, steps[0].At))
		}
	}
}
