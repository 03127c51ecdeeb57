package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/migration"
)

// TestFiguresOutliveTheSource: what the report had come to as the switch began is in every record
// from there on, and in the report of the agent that goes on.
func TestFiguresOutliveTheSource(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	dir := t.TempDir()
	log, err := journal.Create(dir, plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the test ends
	m := &outgoing{
		a: &Agent{config: &config.Config{Host: "paris"}}, plan: plan, state: sourceDoing(t, migration.AskSuspend), log: log,
		work: &sourceWork{skew: time.Second, lastTick: func() *Tick { return &Tick{N: 7, At: 70, Mono: 5} }}, rec: newRecord("paris", plan, time.Now()),
	}
	m.rec.enter(migration.Copy, time.Unix(1, 0))
	m.rec.edit(func(r *Report) { r.Rounds, r.MemoryBytes, r.Predicted = 3, 1<<30, &Prediction{DowntimeMS: 45} })
	for _, doing := range []migration.Effect{migration.Flip, migration.Pause, migration.Release} {
		if _, err := m.step(migration.Input{Kind: migration.Done}); err != nil || m.state.Doing() != doing {
			t.Fatal(m.state.Doing(), err)
		}
		m.rec.edit(func(r *Report) { r.Paused = 80 })
		var j sourceJournal
		if err := journal.Read(dir, plan.ID, &j); err != nil {
			t.Fatal(err)
		}
		again := newRecord("paris", plan, time.Now())
		again.recall(j.Report)
		rep := again.snapshot()
		if rep.Rounds != 3 || rep.MemoryBytes != 1<<30 || rep.Predicted == nil || rep.LastTick == nil || rep.LastTick.N != 7 || j.Skew != time.Second {
			t.Errorf("%s: %+v, skew %v", doing, rep, j.Skew)
		}
		if len(rep.Phases) != 2 || rep.Phases[0].End == 0 || rep.Phases[1].Name != migration.Switch || rep.Phases[1].Start != rep.Phases[0].End {
			t.Errorf("%s: phases %+v", doing, rep.Phases)
		}
		if doing == migration.Release && j.Paused != 80 {
			t.Errorf("let go: paused %d", j.Paused)
		}
	}
}

// TestFiguresAreBounded: a report that has grown beyond what a record may have leaves the one before.
func TestFiguresAreBounded(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	m := &outgoing{plan: plan, state: sourceDoing(t, migration.AskSuspend), work: &sourceWork{}, rec: newRecord("paris", plan, time.Now()), kept: json.RawMessage(`{}`)}
	m.rec.note(strings.Repeat("x", mostFigures))
	next, _, err := m.state.Step(migration.Input{Kind: migration.Done})
	if err != nil {
		t.Fatal(err)
	}
	if kept := m.figures(next); string(kept) != "{}" {
		t.Errorf("%d bytes are kept", len(kept))
	}
	for _, wrong := range []string{"", "{", `[]`, `{"id":"m-00000002"}`, `{"id":"m-00000001","outcome":"well"}`} {
		rec := newRecord("paris", plan, time.Unix(1, 0))
		if rec.recall(json.RawMessage(wrong)); rec.snapshot().Guest != "web" {
			t.Errorf("%q was taken for the report", wrong)
		}
	}
}

// TestHearResumed: when the guest ran at the destination is its agent's word, however late; where
// that never wrote it down, the guest's own counter tells.
func TestHearResumed(t *testing.T) {
	last, first := &Tick{N: 1, At: 90, Mono: 1000}, &Tick{N: 9, At: 500, Mono: 1110}
	for _, c := range []struct {
		name       string
		rep        Report
		told, want int64
	}{
		{"told with the release", Report{Resumed: 400, Paused: 100}, 410, 400},
		{"told late", Report{Paused: 100, LastTick: last, FirstTick: first}, 410, 410},
		{"never told", Report{Paused: 100, LastTick: last, FirstTick: first}, 0, 100 + 300},
		{"never told, nor counted", Report{Paused: 100, LastTick: last}, 0, 0},
		{"never told, and the stop is not known", Report{LastTick: last, FirstTick: first}, 0, 0},
	} {
		if c.rep.hearResumed(c.told); c.rep.Resumed != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.rep.Resumed, c.want)
		}
	}
}
