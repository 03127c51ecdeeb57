package agent

import (
	"log/slog"
	"testing"
	"time"

	"godwit/agent/journal"
	"godwit/migration"
)

// TestDisksOfOneThatMayHaveRun: they are kept where a guest may have run, and not where its
// source says that it never let go of it.
func TestDisksOfOneThatMayHaveRun(t *testing.T) {
	why := &migration.Problem{Code: migration.CodeAsked, Text: "tried"}
	for _, c := range []struct {
		name string
		in   []migration.Input
		kept bool
	}{
		{"never let go", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Abort, Epoch: 2, Problem: why}}, false},
		{"taken back", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Abort, Epoch: 3, Problem: why}}, true},
		{"given up", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Disown, Problem: why}}, true},
		{"refused while it waited", []migration.Input{{Kind: migration.Abort, Epoch: 2, Problem: why}}, false},
		{"ran and was taken back", []migration.Input{{Kind: migration.RunsAlready}, {Kind: migration.Abort, Epoch: 3, Problem: why}}, true},
	} {
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		m := &incoming{a: &Agent{log: slog.New(slog.DiscardHandler)}, plan: plan, log: log, rec: newRecord("rome", plan, time.Now()), wake: make(chan struct{}),
			work: &destinationWork{}, state: migration.Destination{Landing: migration.Waiting, Epoch: 2}}
		for _, in := range c.in {
			if _, err := m.step(in); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if m.ran != c.kept || !m.snapshot().Refused() {
			t.Errorf("%s: kept %v, %+v; want kept %v", c.name, m.ran, m.snapshot(), c.kept)
		}
		log.Close()
	}
}
