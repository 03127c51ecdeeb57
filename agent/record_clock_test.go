package agent

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
)

// setOn has the clock be set on by that much since a record began.
func setOn(t *testing.T, rec *record.Record, by time.Duration) {
	t.Helper()
	rep := rec.Snapshot()
	rep.Booted, rep.Requested = rep.Booted-int64(by), rep.Requested-int64(by)
	kept, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	rec.Recall(kept)
}

// TestClockSteppedBeforeTheSwitch: an agent that is started again before the switch, or in a later try, goes on by the
// clock as it went when the migration began, whatever was sent by then.
func TestClockSteppedBeforeTheSwitch(t *testing.T) {
	if clock.Boot() == "" {
		t.Skip("which run of the kernel this is is not known")
	}
	const by = 3 * time.Hour
	for name, moment := range map[string]func(*outgoing){
		"nothing was sent": func(*outgoing) {},
		"something was":    func(m *outgoing) { m.rec.Edit(func(r *record.Report) { r.WireBytes = map[string]int64{"a-b": 5} }) },
		"it begins again": func(m *outgoing) {
			m.newEpoch(migration.Source{Course: migration.Forward, Epoch: 3, Tries: 1})
			m.takeDown(m.state)
		},
	} {
		a, _ := served(t)
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), guest: guests.New(care.Held{}, quiet{gone{done: make(chan struct{})}})}
		setOn(t, m.rec, by)
		moment(m)
		if m.kept == nil {
			m.figures(migration.Source{Course: migration.Forward, Epoch: 2})
		}
		again := record.New("paris", plan, time.Now())
		again.Recall(m.kept)
		if off := time.Duration(again.Now() - m.rec.Now()).Abs(); off > by/2 {
			t.Errorf("%s: the next agent's times are off by %v", name, off)
		}
	}
}

// TestUndonePauseOverAStep: for how long a guest stood still that runs on here is said as long as it was, though the
// clock was set meanwhile.
func TestUndonePauseOverAStep(t *testing.T) {
	for _, by := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
			m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now())}
			setOn(t, m.rec, by)
			paused := m.rec.Now()
			time.Sleep(1500 * time.Millisecond)
			m.noteStood(paused)
			if notes := m.rec.Snapshot().Notes; len(notes) != 1 || notes[0] != "the guest stood still for 1.5s, and runs on here" {
				t.Errorf("set on by %v: %q", by, notes)
			}
		})
	}
}
