package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
)

// TestJournalThatCameBack: a host that lost its power may have a journal again whose migration had ended. The history
// says so: nothing is undone, and the outcome stays. An end of an earlier try says nothing of a later one.
func TestJournalThatCameBack(t *testing.T) {
	for name, c := range map[string]struct {
		epoch uint64 // of what the history has
		gone  bool
	}{"it had ended": {1, true}, "an earlier try had": {0, false}} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			const id = "m-00000001"
			j := journalled(id, "paris", sourceDoing(t, migration.Flip))
			j.Plan.Epoch, j.State.Epoch = 1, 1
			journalOf(t, a, id, j)
			end := record.Report{ID: id, Guest: "web", From: "rome", To: "paris", Outcome: migration.Completed, Epoch: c.epoch, Ended: time.Now().UnixNano()}
			if err := a.records.Write(id+".json", func() record.Report { return end }); err != nil {
				t.Fatal(err)
			}
			a.resumeMigrations(a.ctx, a.readopt(a.ctx))
			if resumed := a.outgoing[id] != nil; resumed == c.gone {
				t.Errorf("it is gone on with: %v", resumed)
			}
			if !c.gone {
				return
			}
			if left, err := journal.Unfinished(a.config.StatePath("journal")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if rep, ok, _ := a.records.History(id); !ok || rep.Outcome != migration.Completed {
				t.Errorf("history: %+v", rep)
			}
		})
	}
}

// TestEarlierTryIsAwaited: a migration that begins again waits for its earlier try where that is undone and not written
// down yet; for nothing else.
func TestEarlierTryIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		landing migration.Landing
		epoch   uint64
		waits   bool
	}{"it is undone": {migration.Gone, 2, true}, "it is being undone": {migration.Declining, 2, false}, "asked twice": {migration.Gone, 3, false}} {
		a, p := awaiting(t)
		p.Plan.Epoch = c.epoch
		m := &incoming{a: a, plan: p.Plan, state: migration.Destination{Landing: c.landing, Epoch: c.epoch}}
		a.incoming[p.Plan.ID] = m
		p.Plan.Epoch = 3
		synctest.Test(t, func(t *testing.T) {
			written := time.AfterFunc(100*time.Millisecond, func() { a.forgetIncoming(p.Plan.ID) })
			a.awaitEarlier(t.Context(), p.Plan)
			if waited := !written.Stop(); waited != c.waits {
				t.Errorf("%s: waited %v", name, waited)
			}
		})
	}
}
