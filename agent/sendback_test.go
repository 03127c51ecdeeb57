package agent

import (
	"context"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/migration"
)

// TestHeldPacketsWaitForTheSource: what waits for a guest that was refused here is not sent back before
// the source's abort, as until then the source would return it.
func TestHeldPacketsWaitForTheSource(t *testing.T) {
	m := comes(t, bareAgent(t, &config.Config{Host: "rome"}))
	var err error
	if m.log, err = journal.Create(m.a.config.StatePath("journal"), m.plan.ID); err != nil {
		t.Fatal(err)
	}
	defer m.log.Close()
	m.wake, m.state = make(chan struct{}), migration.Destination{Landing: migration.Waiting, Epoch: 2}
	tell := func(kind migration.InputKind) {
		t.Helper()
		if _, err := m.step(migration.Input{Kind: kind, Problem: &migration.Problem{Text: "broken"}}); err != nil {
			t.Fatal(err)
		}
	}
	tell(migration.Fault)
	back := make(chan struct{})
	go func() {
		m.awaitTurnedBack(context.Background())
		close(back)
	}()
	select {
	case <-back:
		t.Fatal("it did not wait for the source")
	case <-time.After(50 * time.Millisecond):
	}
	tell(migration.AskRefusal) // it has let go, and its packets come here
	select {
	case <-back:
		t.Fatal("it took a question for the source's word")
	case <-time.After(50 * time.Millisecond):
	}
	tell(migration.Abort)
	select {
	case <-back:
	case <-time.After(time.Second):
		t.Error("it waits on after the source's word")
	}
}
