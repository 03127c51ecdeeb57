package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/agent/sample"
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
		plan := migration.Plan{Guest: "web", To: "rome", Mode: c.mode, Transfer: "lanes", Downtime: c.allow}
		a := bareAgent(t, &config.Config{Host: "paris", Peers: []config.Neighbour{n}})
		m := &outgoing{a: a, guest: guests.New(care.Held{}, nil), plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
		m.bandwidth.Set(100_000_000)
		m.work.facts.Memory, m.work.offer.Touched = 1<<30, 1<<30
		m.predict(t.Context(), n, nil)
		rep := m.rec.Snapshot()
		if long := rep.Predicted.DowntimeMS > 40_000; long != (c.mode == "stopcopy") {
			t.Errorf("%s: downtime %v ms", c.mode, rep.Predicted.DowntimeMS)
		}
		if noted := slices.ContainsFunc(rep.Notes, func(s string) bool { return strings.Contains(s, "stand still") }); noted != c.noted {
			t.Errorf("%s, %v allowed: %q", c.mode, c.allow, rep.Notes)
		}
	}
}

// TestPredictionByTheSample: what a sample found is what counts, not how much memory QEMU has; without one it is that.
func TestPredictionByTheSample(t *testing.T) {
	for name, c := range map[string]struct {
		basis *sample.Basis
		wire  int64 // MiB
	}{
		"no sample":             {nil, 512},
		"half of it zeros":      {&sample.Basis{Content: 512 << 20, Ratio: 1, Again: 1}, 512},
		"packed":                {&sample.Basis{Content: 512 << 20, Ratio: 0.25, Again: 1}, 128},
		"almost all is there":   {&sample.Basis{Content: 512 << 20, Known: 496 << 20, Ratio: 1, Again: 1}, 16 + 5},
		"it is written as well": {&sample.Basis{Content: 512 << 20, Ratio: 0.25, Again: 0.25, DirtyRate: 1 << 30 / 100}, 128 * 9 / 7},
	} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.work.facts.Memory, m.work.offer.Touched = 1<<30, 1<<30
		if c.basis != nil {
			c.basis.Bytes = 1 << 30
		}
		m.predict(t.Context(), n, c.basis)
		got := float64(m.rec.Snapshot().Predicted.WireBytes) / (1 << 20) / 1.04
		if got < float64(c.wire)*0.98 || got > float64(c.wire)*1.03 {
			t.Errorf("%s: %.0f MiB, want %d", name, got, c.wire)
		}
	}
}
