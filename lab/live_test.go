package lab

import (
	"testing"
	"time"

	"godwit/agent/record"
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
		{migration.Copy, record.CopyOfMemory, true}, {migration.Handover, record.CopyOfMemory, false}, {migration.Settle, record.CopyOfRest, true},
	} {
		m := &move{phase: c.phase, done: make(chan struct{}), progress: record.CopyProgress{
			What: c.what, Total: 8 << 20, Remaining: 2 << 20, DataPath: &record.DataPath{Queue: 1 << 20, Waiting: 256}}}
		got := m.live(time.Now())
		if (got.Details != "") != c.shown {
			t.Errorf("%s in %s: %q", c.what, c.phase, got.Details)
		}
		if want := int64(6 << 20); c.what == record.CopyOfRest && got.Copied != want || c.what == record.CopyOfMemory && got.Copied != want-1<<20 {
			t.Errorf("%s in %s: %d bytes are there", c.what, c.phase, got.Copied)
		}
	}
}
