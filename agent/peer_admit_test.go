package agent

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/journal"
	"godwit/migration"
)

// TestSlowJournalHoldsUpNoRelease: while the journal of a migration to here is made, which a slow disk may take seconds
// for, the guest of another, which stands still, is released at once, and the name and the addresses of the first are
// its own. One that cannot be made is an error to all who wait, and bars no other try.
func TestSlowJournalHoldsUpNoRelease(t *testing.T) {
	a, p := awaiting(t)
	a.incoming["m-00000009"] = &incoming{a: a, plan: migration.Plan{ID: "m-00000009", Guest: "db", From: "paris"}, work: &destinationWork{}}
	made, asked := make(chan error), make(chan struct{})
	createJournal = func(dir, id string) (*journal.File, error) {
		close(asked)
		if err := <-made; err != nil {
			return nil, err
		}
		return journal.Create(dir, id)
	}
	defer func() { createJournal = journal.Create }()
	begin := func() chan error {
		begun := make(chan error, 1)
		go func() {
			_, err := a.incomingFor(p)
			begun <- err
		}()
		select {
		case <-asked:
		case <-time.After(10 * time.Second):
			t.Fatal("no journal was asked for")
		}
		return begun
	}
	begun := begin()
	found := make(chan error, 1)
	go func() {
		_, err := a.findIncoming(callFrom(t, "paris", "m-00000009", nil))
		found <- err
	}()
	select {
	case err := <-found:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		made <- nil
		t.Fatal("a release waits for another's journal")
	}
	again, err := a.incomingFor(p) // its source asks again
	if err != nil {
		t.Fatal(err)
	}
	other := p
	other.Plan.ID = "m-00000002"
	if _, err := a.incomingFor(other); err == nil {
		t.Error("the guest comes by two migrations")
	}
	made <- unix.ENOSPC
	if err := <-begun; !errors.Is(err, unix.ENOSPC) {
		t.Errorf("it has begun: %v", err)
	}
	if _, err := again.await(t.Context(), func(migration.Destination) bool { return false }); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("who asked again is told %v", err)
	}
	asked = make(chan struct{})
	begun = begin()
	made <- nil
	if err := <-begun; err != nil {
		t.Errorf("the next try: %v", err)
	}
	waitFor(t, "it is undone, as its disk has no size", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.incoming[p.Plan.ID] == nil })
	a.actors.Wait()
}
