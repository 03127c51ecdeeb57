package agent

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// starves is a QEMU that waits for a page, and answers nobody until it is ended.
type starves struct {
	unwilling
	asked      chan struct{} // closed when somebody asks for its status
	first, end sync.Once
}

func (s *starves) Status(context.Context) (vm.Status, error) {
	s.first.Do(func() { close(s.asked) })
	return "", errors.New("no answer")
}

func (s *starves) Close() error { return nil }

func (s *starves) Quit(context.Context) error {
	s.end.Do(func() { close(s.quit) })
	return nil
}

// TestLostWhileItStarts: a guest whose QEMU waits for a page as it is started is given up when its source says that its
// pages are nowhere any more: nobody else would ever end that. What it did, if it ran, is kept.
func TestLostWhileItStarts(t *testing.T) {
	for name, ran := range map[string]bool{"it did not run": false, "it ran": true} {
		a := between(t)
		a.config.Peers = nil // its source is not asked, and says it itself
		ctx, end := context.WithCancel(t.Context())
		a.ctx = ctx
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Mode: "postcopy", Transfer: "lanes"}
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		qemu := &starves{unwilling: unwilling{runs: ran, quit: make(chan struct{})}, asked: make(chan struct{})}
		g := guests.New(care.Held{Dir: t.TempDir()}, qemu)
		g.Remember(func(h *care.Held) { h.Description.Name = "web" })
		m := &incoming{
			a: a, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}), inbox: make(chan migration.Input, 4),
			work: &destinationWork{guest: g}, shown: g, state: migration.Destination{Landing: migration.Waiting, Epoch: 2, Released: true},
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.run(ctx, migration.Input{Kind: migration.LoadedAll})
		}()
		<-qemu.asked
		m.inbox <- migration.Input{Kind: migration.Lose, Epoch: 2, Problem: &migration.Problem{Code: migration.CodeGuestGone, Text: "its pages are nowhere"}}
		within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		state, err := m.await(within, migration.Destination.Refused)
		cancel()
		if err != nil || ran != (state.Outcome == migration.Failed) || ran != m.ran.Load() {
			t.Errorf("%s: %v, %+v, its disks are kept: %v", name, err, state, m.ran.Load())
		}
		end()
		<-ended
	}
}

// TestForsakenGuestIsGivenUp: a guest whose QEMU waits for a page as it is started, and whose source is silent, is a
// doubt that a person may end; not while the source is heard. What it did, if it ran, is kept.
func TestForsakenGuestIsGivenUp(t *testing.T) {
	a := between(t)
	a.config.Peers = nil // its source answers nobody
	ctx, end := context.WithCancel(t.Context())
	a.ctx = ctx
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Mode: "postcopy", Transfer: "lanes"}
	log, err := journal.Create(t.TempDir(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	qemu := &starves{unwilling: unwilling{quit: make(chan struct{})}, asked: make(chan struct{})}
	g := guests.New(care.Held{Dir: t.TempDir()}, qemu)
	g.Remember(func(h *care.Held) { h.Description.Name = "web" })
	m := &incoming{
		a: a, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}), inbox: make(chan migration.Input, 4),
		work: &destinationWork{guest: g}, shown: g, state: migration.Destination{Landing: migration.Waiting, Epoch: 2, Released: true},
	}
	a.incoming[plan.ID] = m
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx, migration.Input{Kind: migration.LoadedAll})
	}()
	<-qemu.asked
	if all, err := a.doubts(t.Context(), ""); err != nil || len(all) > 0 || a.giveUp(t.Context(), plan.ID) == nil {
		t.Errorf("its source was heard just now: %+v, %v, or it was given up", all, err)
	}
	m.heard.Store(int64(time.Since(started) - 2*forsakenAfter))
	if all, err := a.doubts(t.Context(), "web"); err != nil || len(all) != 1 || len(all[0].Ways) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := a.giveUp(t.Context(), plan.ID); err != nil {
		t.Error(err)
	}
	if state := m.snapshot(); !state.Refused() || !state.Disowned || !m.ran.Load() {
		t.Errorf("%+v, its disks are kept: %v", state, m.ran.Load())
	}
	<-ended
	end()
}
