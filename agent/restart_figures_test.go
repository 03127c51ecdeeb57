package agent

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/vm"
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
		work: &sourceWork{skew: time.Second, lastTick: func() *record.Tick { return &record.Tick{N: 7, At: 70, Mono: 5} }}, rec: record.New("paris", plan, time.Now()),
	}
	m.rec.Enter(migration.Copy, time.Unix(1, 0))
	m.rec.Edit(func(r *record.Report) {
		r.Rounds, r.MemoryBytes, r.Predicted = 3, 1<<30, &record.Prediction{DowntimeMS: 45}
	})
	for _, doing := range []migration.Effect{migration.Flip, migration.Pause, migration.Release} {
		if _, err := m.step(migration.Input{Kind: migration.Done}); err != nil || m.state.Doing() != doing {
			t.Fatal(m.state.Doing(), err)
		}
		m.rec.Edit(func(r *record.Report) { r.Paused = 80 })
		var j written.Source
		if err := journal.Read(dir, plan.ID, &j); err != nil {
			t.Fatal(err)
		}
		again := record.New("paris", plan, time.Now())
		again.Recall(j.Report)
		rep := again.Snapshot()
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

// TestDisksLeftOutliveTheSource: which disks are of no use here any more is written down before the guest is forgotten:
// an agent that is killed after that, and started again, knows nobody whom it could ask.
func TestDisksLeftOutliveTheSource(t *testing.T) {
	a := startedAgain(t)
	h, _ := rememberedGuest(t, a)
	h.Description.Disks = []vm.Disk{{ID: "disk0", Path: a.diskPath("web", 1, "disk0")}, {ID: "seed", Path: "/srv/seed.iso"}}
	j := journalled("m-00000001", "berlin", sourceDoing(t, migration.AwaitLanding))
	path := journalOf(t, a, j.Plan.ID, j)
	log, err := journal.Open(filepath.Dir(path), j.Plan.ID, &j)
	if err != nil {
		t.Fatal(err)
	}
	killed := &outgoing{a: a, guest: guests.New(h, nil), plan: j.Plan, state: j.State, log: log, work: &sourceWork{}, rec: record.New("rome", j.Plan, a.clock())}
	if _, err := killed.step(migration.Input{Kind: migration.Done, Effect: migration.AwaitLanding}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.guests.Forget(killed.guest), log.Close()); err != nil {
		t.Fatal(err)
	}
	a.resumeMigrations(a.ctx, a.readopt(a.ctx))
	waitFor(t, "it has ended", func() bool { _, ok, _ := a.records.History(j.Plan.ID); return ok })
	if rep, _, err := a.records.History(j.Plan.ID); err != nil || rep.Outcome != migration.Completed || !slices.Equal(rep.Left, []string{"web-1-disk0.raw"}) {
		t.Errorf("%s, left %q, %v", rep.Outcome, rep.Left, err)
	}
}

// TestFiguresAreBounded: a report that has grown beyond what a record may have leaves the one before.
func TestFiguresAreBounded(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	m := &outgoing{plan: plan, state: sourceDoing(t, migration.AskSuspend), work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), kept: json.RawMessage(`{}`)}
	m.rec.Note(strings.Repeat("x", mostFigures))
	next, _, err := m.state.Step(migration.Input{Kind: migration.Done})
	if err != nil {
		t.Fatal(err)
	}
	if kept := m.figures(next); string(kept) != "{}" {
		t.Errorf("%d bytes are kept", len(kept))
	}
	for _, wrong := range []string{"", "{", `[]`, `{"id":"m-00000002"}`, `{"id":"m-00000001","outcome":"well"}`} {
		rec := record.New("paris", plan, time.Unix(1, 0))
		if rec.Recall(json.RawMessage(wrong)); rec.Snapshot().Guest != "web" {
			t.Errorf("%q was taken for the report", wrong)
		}
	}
}
