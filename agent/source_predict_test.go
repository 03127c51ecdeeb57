package agent

import (
	"math"
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

// TestSpeedOfStopcopy: a guest that stands still is copied no slower than one that runs, and as fast as the last that
// did; where none has, the forecast says that it is not sure.
func TestSpeedOfStopcopy(t *testing.T) {
	const mb = 1_000_000
	basis := &sample.Basis{Fastest: 200 * mb}
	for name, c := range map[string]struct {
		mode   string
		basis  *sample.Basis
		copied time.Duration // an earlier stopcopy's pause; 0: there was none; less: it is not known
		want   int64
		unsure bool
	}{
		"it runs":                         {"precopy", basis, 0, 50 * mb, false},
		"nobody knows":                    {"stopcopy", basis, 0, 100 * mb, true},
		"nothing was measured":            {"stopcopy", nil, 0, 50 * mb, false},
		"it cannot be faster":             {"stopcopy", &sample.Basis{Fastest: 40 * mb}, 0, 50 * mb, false},
		"nobody knows how long one took":  {"stopcopy", basis, -1, 100 * mb, true},
		"one has shown it":                {"stopcopy", basis, 4096 * time.Millisecond, 10 * mb, false},
		"one has shown it, and this runs": {"precopy", basis, 4096 * time.Millisecond, 50 * mb, false},
	} {
		m, _ := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
		m.work.facts.Accel = "tcg"
		if c.copied != 0 {
			rec := record.New("paris", migration.Plan{ID: "m-00000002", Guest: "web", From: "paris", To: "rome", Mode: "stopcopy"}, time.Now())
			rec.Edit(func(r *record.Report) {
				r.Mode, r.Paused, r.Resumed, r.DataPath = "stopcopy", 1, max(0, 1+int64(c.copied)), &record.DataPath{Pages: map[string]int64{"raw": 10000}}
			})
			rec.End(migration.Completed, nil, time.Now())
			m.a.records.Add(rec)
		}
		if speed, unsure := m.speed(100e6, c.basis); unsure != c.unsure || math.Abs(float64(speed-c.want)) > 0.01*float64(c.want) {
			t.Errorf("%s: %d, not sure %v; want %d, %v", name, speed, unsure, c.want, c.unsure)
		}
	}
}

// TestForecastSaysWhatItRestsOn: that writes to a disk will wait, that nobody knows how fast hosts are, and that
// another guest is on its way.
func TestForecastSaysWhatItRestsOn(t *testing.T) {
	m, n := budgeted(t, "stopcopy", 300*time.Millisecond, 20*time.Millisecond)
	m.work.facts.Accel, m.work.facts.Memory, m.work.offer.Touched = "tcg", 1<<30, 1<<30
	m.a.records.Add(m.rec)
	for id, to := range map[string]string{"m-00000002": "rome", "m-00000003": "oslo", "m-00000004": "rome, and counts"} {
		counts := strings.Contains(to, "counts")
		to = strings.TrimSuffix(to, ", and counts")
		rec := record.New("paris", migration.Plan{ID: id, Guest: "to-" + to, From: "paris", To: to}, time.Now())
		rec.Edit(func(r *record.Report) {
			if r.Predicted = (&record.Prediction{WireBytes: 1 << 30}); counts { // it was in check at the same time
				r.Predicted.Beside = []string{m.plan.ID}
			}
		})
		defer func() {
			if said := strings.Contains(strings.Join(rec.Snapshot().Notes, "; "), "other guests move there, too, since this was foreseen"); said != (to == "rome" && !counts) {
				t.Errorf("the one to %s is told: %v", to, said)
			}
		}()
		m.a.records.Add(rec)
	}
	looked := make(chan diskLook, 1)
	looked <- diskLook{facts: policy.DiskFacts{Bytes: 1 << 30, Packed: 1 << 30, Writes: 1000, Size: 4096}}
	m.work.disksLooked = looked
	m.predict(t.Context(), n, &sample.Basis{Bytes: 1 << 30, Content: 1 << 30, Known: 1 << 30, Ratio: 1, Again: 1, Fastest: 200e6})
	notes := m.rec.Snapshot().Notes
	for _, want := range []string{"no stop-and-copy to rome has shown yet", "it writes to its disks 1000 times a second", "to-rome moves there, too"} {
		if !slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("not said: %s; %q", want, notes)
		}
	}
	if slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, "oslo") }) {
		t.Errorf("a guest that goes elsewhere is told of: %q", notes)
	}
}

// TestForecastBesideOthers: what others have yet to send over the same paths, as far as their bandwidth lets them,
// makes it longer; of one that goes on though it has sent all that was foreseen nobody knows for how long.
func TestForecastBesideOthers(t *testing.T) {
	const bytes = 200 << 20
	for name, c := range map[string]struct {
		predicted, sent int64 // of the other; no prediction: it is not foreseen yet
		ended, copied   bool
		most            int64
		times           float64 // as long
	}{
		"it has all to send":       {300 << 20, 0, false, false, 0, 2},
		"it is in check":           {0, 0, false, false, 0, 2},
		"half as much is left":     {300 << 20, 200 << 20, false, false, 0, 1.5},
		"it has sent more":         {300 << 20, 400 << 20, false, false, 0, 2},
		"more, and that was all":   {300 << 20, 400 << 20, false, true, 0, 1},
		"it has ended":             {300 << 20, 0, true, false, 0, 1},
		"its bandwidth is limited": {300 << 20, 0, false, false, 19e6, 1.25},
	} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer, m.a.outgoing = "qemu-tcp", map[string]*outgoing{}
		basis := &sample.Basis{Bytes: bytes, Content: bytes, Ratio: 1, Again: 1}
		m.predict(t.Context(), n, basis)
		alone := m.rec.Snapshot().Predicted.MigrationS
		plan := migration.Plan{ID: "m-00000002", Guest: "db", From: "paris", To: "rome"}
		other := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now())}
		other.bandwidth.Set(c.most)
		other.rec.Edit(func(r *record.Report) {
			if r.WireBytes = map[string]int64{"public-public": c.sent}; c.predicted > 0 {
				r.Predicted = &record.Prediction{WireBytes: c.predicted}
			}
			if c.copied {
				r.MemoryDone = 1
			}
		})
		m.a.records.Add(other.rec)
		m.a.outgoing[plan.ID] = other
		if c.ended {
			other.rec.End(migration.Completed, nil, time.Now())
		}
		m.predict(t.Context(), n, basis)
		const copied = bytes * 1.04 / (0.95 * 100e6 / 8)
		if got := (m.rec.Snapshot().Predicted.MigrationS - alone + copied) / copied; got < c.times-0.03 || got > c.times+0.03 {
			t.Errorf("%s: %.2f times as long, want %.2f", name, got, c.times)
		}
	}
}
