package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
)

// newerThanAll has the history grow by as many migrations as are kept whole.
func newerThanAll(t *testing.T, a *Agent) {
	t.Helper()
	for i := range 1000 {
		id := fmt.Sprintf("m-ff%06x", i)
		path := a.config.StatePath("history", id+".json")
		if err := errors.Join(os.WriteFile(path, fmt.Appendf(nil, `{"id":%q,"ended":1}`, id), 0o600), os.Chtimes(path, time.Time{}, time.Unix(2, 0))); err != nil {
			t.Fatal(err)
		}
	}
}

// keepOld writes a report into the history, as of long ago.
func keepOld(t *testing.T, a *Agent, name string, rep record.Report) {
	t.Helper()
	path := a.config.StatePath("history", name)
	if err := errors.Join(statefile.Write(path, rep), os.Chtimes(path, time.Time{}, time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
}

// TestShortAnswersAsWhole: a host that comes back after months, with a journal of then, is told the same of a migration
// that is kept in short, and as little is begun or believed by it here.
func TestShortAnswersAsWhole(t *testing.T) {
	a := between(t)
	a.guests.ExpectAgain(guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)) // it may run here
	p := goodPreparation()
	came, left := map[migration.Outcome]migration.Plan{}, map[migration.Outcome]migration.Plan{}
	for i, outcome := range []migration.Outcome{migration.Completed, migration.Aborted, migration.Failed} {
		plan := p.Plan
		plan.ID = fmt.Sprintf("m-0000000%x", i)
		rep := record.NewReport(plan, 5)
		rep.Outcome, rep.Resumed, rep.Handed, rep.MemoryDone, rep.Ended = outcome, 70, 80, 90, 100
		rep.Survival = &record.Survival{Connections: []record.Survivor{{}}}
		if outcome != migration.Completed {
			rep.Problem = &migration.Problem{Code: migration.CodeAgent, Text: "the destination's agent ended"}
		}
		keepOld(t, a, plan.ID+"-destination.json", rep)
		came[outcome] = plan
		plan.ID, plan.From, plan.To = fmt.Sprintf("m-0000001%x", i), "rome", "paris"
		rep.ID, rep.From, rep.To = plan.ID, plan.From, plan.To
		keepOld(t, a, plan.ID+".json", rep)
		left[outcome] = plan
	}
	whole := toldOf(t, a, came, left)
	newerThanAll(t, a)
	if err := a.records.Shorten(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if rep, known := a.records.Report("m-00000000"); !known || rep.Survival != nil {
		t.Fatalf("it is not kept in short: %v, %+v", known, rep)
	}
	short := toldOf(t, a, came, left)
	for name, want := range whole {
		if short[name] != want {
			t.Errorf("%s: %v, and of the whole report %v", name, short[name], want)
		}
	}
	if len(whole) < 30 || len(a.incoming) > 0 {
		t.Errorf("%d answers; %d migrations begun", len(whole), len(a.incoming))
	}
}

// toldOf is what paris is told of migrations that came from there, and left for there, by what each was asked.
func toldOf(t *testing.T, a *Agent, came, left map[migration.Outcome]migration.Plan) map[string]string {
	t.Helper()
	all := map[string]string{}
	keep := func(name string, answer any, err error) {
		data, merr := json.Marshal(answer)
		if merr != nil {
			t.Fatal(merr)
		}
		all[name] = fmt.Sprintf("%s, %v", data, err)
	}
	for outcome, plan := range came {
		for which, epoch := range map[string]uint64{"its epoch": plan.Epoch, "another": plan.Epoch + 1} {
			name, try := fmt.Sprintf("%s, %s, ", outcome, which), plan
			try.Epoch = epoch
			answer, err := a.peerRelease(callFrom(t, "paris", plan.ID, try))
			if r, is := answer.(talk.ReleaseAnswer); is {
				r.Now = 0
				answer = r
			}
			keep(name+"release", answer, err)
			answer, err = a.peerRefill(callFrom(t, "paris", plan.ID, talk.Refill{Epoch: epoch}))
			keep(name+"refill", answer, err)
			answer, err = a.peerAbort(callFrom(t, "paris", plan.ID, talk.Undo{Epoch: epoch, Released: true}))
			keep(name+"taken back", answer, err)
			keep(name+"journal", a.records.HasEnded(plan.ID+"-destination.json", epoch), nil)
		}
		for _, host := range []string{"paris", "oslo"} {
			answer, err := a.peerLanding(callFrom(t, host, plan.ID, nil))
			keep(fmt.Sprintf("%s, landing, to %s", outcome, host), answer, err)
		}
		answer, err := a.peerLanded(callFrom(t, "paris", plan.ID, nil))
		var r record.Report
		if l, is := answer.(talk.LandedAnswer); is {
			r.TakeOver(l.Report, 0)
			r.Notes, r.Survival = nil, nil
		}
		keep(string(outcome)+", landed", r, err)
		_, err = a.incomingFor(talk.Preparation{Plan: plan})
		keep(string(outcome)+", a late prepare", nil, err)
		answer, err = a.peerCourse(callFrom(t, "paris", left[outcome].ID, nil))
		keep(string(outcome)+", course", answer, err)
	}
	return all
}

// TestHistoryIsBound: an agent that runs keeps it so, but for what a lease that lasts will change.
func TestHistoryIsBound(t *testing.T) {
	a := between(t)
	for _, id := range []string{"m-00000001", "m-00000002"} {
		keepOld(t, a, id+".json", record.Report{ID: id, From: "rome", To: "paris", Ended: 1})
	}
	newerThanAll(t, a)
	d := &detour.Detour{ID: "m-00000002-paris", Guest: "web", Peer: "paris", Leased: true}
	a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, map[string]*detour.Detour{d.ID: d})
	synctest.Test(t, func(t *testing.T) {
		go a.boundHistory(t.Context())
		time.Sleep(historyLook)
		synctest.Wait()
	})
	for id, want := range map[string]bool{"m-00000001": false, "m-00000002": true} {
		_, err := os.Stat(filepath.Join(a.config.State, "history", id+".json"))
		if whole := err == nil; whole != want {
			t.Errorf("%s is kept whole: %v", id, whole)
		}
	}
}
