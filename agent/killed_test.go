package agent

import (
	"testing"

	"godwit/migration"
)

// Tests of agents that were killed between two things that belong together, as the next agent finds them.

// TestTakenBackHoldsAfterARestart: an agent that ended before it wrote down by which right the guest is here leaves that to the next: a
// later migration would else hand over the right that was taken back.
func TestTakenBackHoldsAfterARestart(t *testing.T) {
	a := startedAgain(t)
	g, _ := haltedGuest(a, "web")
	g.Held = goodHeld(a.config.Run)
	g.Held.Epoch = 1
	if err := a.guests.save(g); err != nil {
		t.Fatal(err)
	}
	state, _, err := sourceDoing(t, migration.Release).Step(migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked, Text: "taken back"}})
	if err != nil {
		t.Fatal(err)
	}
	j := journalled("m-00000001", "berlin", state) // which is not configured any more
	j.Plan.Network = "tunnel"
	journalOf(t, a, "m-00000001", j)
	a.resumeMigrations(a.ctx, nil)
	a.actors.Wait()
	if kept := onDisk(t, a).Epoch; g.held().Epoch != state.Epoch || kept != state.Epoch {
		t.Errorf("it is here by epoch %d, %d on the disk; taken back: %d", g.held().Epoch, kept, state.Epoch)
	}
}
