package lab

import (
	"testing"
	"time"

	"godwit/agent"
	"godwit/migration"
)

// TestLiveDetails: what the guest writes and what waits is shown while memory is copied, and not when
// that is over.
func TestLiveDetails(t *testing.T) {
	for _, c := range []struct {
		phase migration.Phase
		what  string
		shown bool
	}{
		{migration.Copy, agent.CopyOfMemory, true}, {migration.Handover, agent.CopyOfMemory, false}, {migration.Settle, agent.CopyOfRest, true},
	} {
		m := &move{phase: c.phase, done: make(chan struct{}), progress: agent.CopyProgress{
			What: c.what, Total: 8 << 20, Remaining: 2 << 20, DataPath: &agent.DataPath{Queue: 1 << 20, Waiting: 256}}}
		got := m.live(time.Now())
		if (got.Details != "") != c.shown {
			t.Errorf("%s in %s: %q", c.what, c.phase, got.Details)
		}
		if want := int64(6 << 20); c.what == agent.CopyOfRest && got.Copied != want || c.what == agent.CopyOfMemory && got.Copied != want-1<<20 {
			t.Errorf("%s in %s: %d bytes are there", c.what, c.phase, got.Copied)
		}
	}
}
