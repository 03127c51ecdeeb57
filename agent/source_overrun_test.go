package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
)

// TestOverrunIsTold: a guest that stood still for longer than its budget has a note that says so, and what
// took longest; one that did not, or that was to be copied while it stands still, has none.
func TestOverrunIsTold(t *testing.T) {
	const ms = 1_000_000
	switched := []record.Step{{Name: record.StepStop, At: 1000 * ms, MS: 20}, {Name: record.StepLoaded, At: 1500 * ms, MS: 0}, {Name: record.StepStart, At: 1501 * ms, MS: 50}}
	waits := []record.Step{{Name: record.StepStop, At: 1000 * ms, MS: 20}, {Name: record.StepDisks, At: 1020 * ms, MS: 400}, {Name: record.StepLoaded, At: 1450 * ms, MS: 0}, {Name: record.StepStart, At: 1451 * ms, MS: 50}}
	starts := []record.Step{{Name: record.StepStop, At: 1000 * ms, MS: 20}, {Name: record.StepLoaded, At: 1050 * ms, MS: 0}, {Name: record.StepStart, At: 1060 * ms, MS: 480}}
	late := []record.Step{{Name: record.StepStop, At: 1000 * ms, MS: 20}, {Name: record.StepLoaded, At: 1270 * ms, MS: 0}, {Name: record.StepStart, At: 1271 * ms, MS: 270}}
	slow := []record.Step{{Name: record.StepStop, At: 920 * ms, MS: 100}, {Name: record.StepLoaded, At: 1110 * ms, MS: 0}, {Name: record.StepStart, At: 1111 * ms, MS: 150}}
	for _, c := range []struct {
		name, mode string
		budget     time.Duration
		first      int64 // tick at the destination, ms; 0: none was heard
		steps      []record.Step
		want       string
	}{
		{"within", "precopy", time.Second, 1590, switched, ""},
		{"stopcopy", "stopcopy", 300 * time.Millisecond, 1590, switched, ""},
		{"memory", "precopy", 300 * time.Millisecond, 1590, switched, "stood still for 551ms, its downtime budget was 300ms: the last of its memory and its devices took 480ms"},
		{"disks", "hybrid", 300 * time.Millisecond, 1590, waits, "in sync, took 400ms"},
		{"start", "precopy", 300 * time.Millisecond, 1590, starts, "starting it took 480ms"},
		{"it ran before QEMU answered", "postcopy", 200 * time.Millisecond, 1285, late, "the last of its memory and its devices took 250ms"},
		{"it ran before QEMU answered, and was slow to stop", "postcopy", 100 * time.Millisecond, 1120, slow, "stopping it took 100ms"},
		{"no steps", "precopy", 300 * time.Millisecond, 1590, nil, "its downtime budget was 300ms"},
		{"not counted", "precopy", 300 * time.Millisecond, 0, switched, "stood still for 540ms"},
	} {
		plan := migration.Plan{ID: "m-00000001", Guest: "web", Mode: c.mode, Downtime: c.budget}
		m := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now()), state: migration.Source{Outcome: migration.Completed}}
		m.rec.Edit(func(r *record.Report) {
			r.Paused, r.Resumed, r.Critical = 1020*ms, 1560*ms, c.steps
			last := int64(1000 * ms)
			if len(c.steps) > 0 {
				last = c.steps[0].At
			}
			if c.first != 0 {
				r.LastTick, r.FirstTick = &record.Tick{N: 1, At: last}, &record.Tick{N: 2, At: c.first * ms}
			}
		})
		m.noteOverrun()
		m.noteOverrun()
		notes := m.rec.Snapshot().Notes
		if has := slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, c.want) }); has != (c.want != "") || len(notes) > 1 {
			t.Errorf("%s: %q, want %q", c.name, notes, c.want)
		}
	}
}

// TestOverrunIsInTheHistory: the note is there when the outcome is written down.
func TestOverrunIsInTheHistory(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.ctx, a.outgoing, a.feed = t.Context(), map[string]*outgoing{}, newFeed()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "precopy", Downtime: 300 * time.Millisecond, Epoch: 2}
	log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := &outgoing{
		a: a, guest: guests.New(care.Held{}, nil), plan: plan, log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()),
		state: migration.Source{Course: migration.Ended, Outcome: migration.Completed},
	}
	m.rec.Edit(func(r *record.Report) { r.Paused, r.Resumed = 1, 1+int64(time.Second) })
	m.finish()
	rep, known, err := a.records.History(plan.ID)
	if err != nil || !known || !slices.ContainsFunc(rep.Notes, func(s string) bool { return strings.Contains(s, "stood still for 1s") }) {
		t.Errorf("%v, %v: %q", known, err, rep.Notes)
	}
}
