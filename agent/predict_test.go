package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/sample"
	"godwit/migration"
	"godwit/policy"
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
		m.predict(n, nil)
		rep := m.rec.snapshot()
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
		m.predict(n, c.basis)
		got := float64(m.rec.snapshot().Predicted.WireBytes) / (1 << 20) / 1.04
		if got < float64(c.wire)*0.98 || got > float64(c.wire)*1.03 {
			t.Errorf("%s: %.0f MiB, want %d", name, got, c.wire)
		}
	}
}

// TestCopiedTo: what the last move there showed counts, of this host, over our own data path, that came to its end.
func TestCopiedTo(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.records = map[string]*Record{}
	add := func(id, to string, ended int64, pages int64, change func(*Report)) {
		plan := migration.Plan{ID: id, Guest: "web", From: "paris", To: to, Bandwidth: 20e6}
		rec := newRecord("paris", plan, time.Now())
		rec.report.Outcome, rec.report.Ended = migration.Completed, ended
		rec.report.Phases = []PhaseSpan{{migration.Check, 0, 7}, {migration.Copy, 7, 7 + int64(3*time.Second)}}
		rec.report.WireBytes, rec.report.DiskBytes = map[string]int64{"a-b": 5000, "c-d": 600}, 100
		rec.report.DataPath = &DataPath{Pages: map[string]int64{"zero": 1e6, "raw": pages, "known": 2 * pages}}
		change(&rec.report)
		a.records[id] = rec
	}
	as := func(*Report) {}
	add("m-1", "rome", 10, 1000, as)
	add("m-2", "rome", 20, 2000, as)
	add("m-3", "rome", 30, 3000, func(r *Report) { r.Outcome = migration.Aborted })
	add("m-4", "rome", 40, 4000, func(r *Report) { r.DataPath = nil })
	add("m-5", "rome", 50, 5000, func(r *Report) { r.From, r.To = "rome", "paris" })
	add("m-6", "oslo", 60, 6000, as)
	want := policy.Copied{Handled: 3 * 2000 * 4096, Took: 3 * time.Second, Wire: 5500, Rate: 20e6}
	if got := a.copiedTo("rome", 100e6); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := a.copiedTo("bonn", 100e6); got.Handled != 0 {
		t.Errorf("nothing went there: %+v", got)
	}
}
