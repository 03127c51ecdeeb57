package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
)

// TestStopcopySaysItsPause: who asks for stop-and-copy hears for how long the guest will stand still,
// where that is longer than the downtime that was allowed.
func TestStopcopySaysItsPause(t *testing.T) {
	n := config.Neighbour{Host: "rome"}
	for _, c := range []struct {
		mode  string
		allow time.Duration
		noted bool
	}{{"stopcopy", 300 * time.Millisecond, true}, {"stopcopy", time.Hour, false}, {"precopy", 300 * time.Millisecond, false}} {
		plan := migration.Plan{Guest: "web", To: "rome", Mode: c.mode, Transfer: "lanes", Downtime: c.allow, Bandwidth: 100_000_000}
		m := &outgoing{a: &Agent{config: &config.Config{Host: "paris", Peers: []config.Neighbour{n}}}, guest: &Guest{}, plan: plan, work: &sourceWork{}, rec: newRecord("paris", plan, time.Now())}
		m.work.facts.Memory, m.work.offer.Touched = 1<<30, 1<<30
		m.predict(n)
		rep := m.rec.snapshot()
		if long := rep.Predicted.DowntimeMS > 40_000; long != (c.mode == "stopcopy") {
			t.Errorf("%s: downtime %v ms", c.mode, rep.Predicted.DowntimeMS)
		}
		if noted := slices.ContainsFunc(rep.Notes, func(s string) bool { return strings.Contains(s, "stand still") }); noted != c.noted {
			t.Errorf("%s, %v allowed: %q", c.mode, c.allow, rep.Notes)
		}
	}
}
