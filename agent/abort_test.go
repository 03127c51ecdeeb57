package agent

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/written"
	"godwit/migration"
)

// TestAbortIsAnsweredByWhatItComesTo: a migration that lets go in the moment in which it is called off is not said to
// turn back.
func TestAbortIsAnsweredByWhatItComesTo(t *testing.T) {
	letGo, undone := sourceDoing(t, migration.Release), migration.Source{Course: migration.Undoing}
	for name, c := range map[string]struct {
		then func(m *outgoing)
		want string
	}{
		"it turned back":    {func(m *outgoing) { m.told.Store(&undone) }, ""},
		"it was letting go": {func(m *outgoing) { m.told.Store(&letGo) }, "handed over"},
		"it takes its time": {func(*outgoing) {}, ""},
	} {
		m := &outgoing{plan: migration.Plan{ID: "m-00000001", To: "paris"}, inbox: make(chan migration.Input, 1)}
		go func() {
			<-m.inbox
			time.Sleep(20 * time.Millisecond)
			c.then(m)
		}()
		patience := 20 * time.Second
		if name == "it takes its time" {
			patience = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := m.abortFor(ctx, &migration.Problem{Code: migration.CodeAsked})
		cancel()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: answered %v, want %q", name, err, c.want)
		}
	}
}

// TestAbortOfOneThatBeginsAgain: a migration that waits for its destination to undo, to begin again, waits no longer
// than another once it is called off.
func TestAbortOfOneThatBeginsAgain(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	ctx, end := context.WithCancel(t.Context())
	a.ctx = ctx
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	link := linked(t, "paris", "rome", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	m := &outgoing{
		a: a, guest: guests.New(care.Held{}, nil), plan: plan, link: link, rec: record.New("paris", plan, time.Now()), work: &sourceWork{}, inbox: make(chan migration.Input, 1),
		state: migration.Source{Course: migration.Undoing, Undo: []migration.Effect{migration.UndoPrepareThere}, Epoch: 2, Again: true},
	}
	log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	m.log = log
	m.inbox <- migration.Input{Kind: migration.Abort}
	begun := time.Now()
	in, stop := m.performUnlessTold(ctx, migration.UndoPrepareThere)
	if took := time.Since(begun); in.Kind != migration.Fault || stop || m.calledOff == nil || took > limits.SendBack.For/2 {
		t.Errorf("%+v, %v, called off %v, after %v", in, stop, m.calledOff, took)
	}
	end() // the agent is killed here
	a.actors.Wait()
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	var kept written.Source
	if again, err := journal.Open(a.config.StatePath("journal"), plan.ID, &kept); err != nil || kept.State.Again || kept.State.Course != migration.Undoing {
		t.Errorf("the next agent reads %+v, %v", kept.State, err)
	} else if err := again.Close(); err != nil {
		t.Error(err)
	}
}
