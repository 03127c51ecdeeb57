package agent

import (
	"context"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/policy"
)

// What a page of zeros costs: our own data path names runs of them, QEMU each.
const zeroOwn, zeroQEMU = 0.1, 9

// predict foresees what the migration will cost, as far as can be known before the first byte. basis is what a sample
// of memory told; nil: nothing did.
func (m *outgoing) predict(ctx context.Context, n config.Neighbour, basis *sample.Basis) {
	memory, path := m.work.facts.Memory, m.lossyPaths(n)
	facts := policy.Facts{
		Memory: memory, Content: min(m.work.offer.Touched, memory), Ratio: 1, Zero: zeroQEMU,
		Disks: m.diskFacts(ctx, path.Loses), Rate: path.rate, RTT: m.work.rtt, LastRTT: m.pauseRTT(), Lost: path.Share, Budget: m.plan.Downtime,
		Tail: m.tailBytes(), DirtyRate: m.work.dirtyRate, MostThrottle: m.a.config.MostThrottle(m.plan),
		Stopped: m.plan.Mode == "stopcopy", Follows: m.plan.Mode == "hybrid", Early: m.plan.Mode == "postcopy",
	}
	if m.plan.OwnPath() {
		facts.Zero = zeroOwn
	}
	if m.plan.Transfer == "qemu-multifd" || m.plan.OwnPath() {
		facts.Ratio = 0.5 // zstd on the memory of ordinary guests (docs/experiments.md)
	}
	if basis != nil {
		facts.Memory, facts.Content, facts.Known = basis.Bytes, basis.Content, basis.Known
		facts.Ratio, facts.Again, facts.DirtyRate, facts.Written = basis.Ratio, basis.Again, basis.DirtyRate, basis.Written
	}
	if !m.plan.OwnPath() { // each round sends a page whole that was written at all, and it takes no long round for that
		facts.Queue = m.queued(path.rate)
		if basis != nil {
			facts.DirtyRate = max(facts.DirtyRate, basis.Writes)
		}
	}
	ids, others, beside := m.beside()
	facts.Paths, facts.Beside = m.together(m.paths(n)), beside
	unsure := false
	if m.plan.OwnPath() {
		facts.Speed, unsure = m.speed(facts.Rate, basis)
	}
	requested, _ := m.rec.Moments()
	facts.Spent = time.Duration(m.rec.Now() - requested)
	f := policy.Predict(facts)
	m.noteForecast(f, unsure)
	m.noteBeside(others)
	m.notePath(path.notes, facts.Disks, f)
	m.rec.Edit(func(r *record.Report) {
		r.Predicted = &record.Prediction{
			MigrationS: f.Migration.Seconds(),
			DowntimeMS: float64(f.Downtime.Microseconds()) / 1000,
			WireBytes:  f.WireBytes,
			Throttled:  f.Throttled,
			Memory:     basis,
			Beside:     ids,
		}
		r.MemoryBytes = memory
	})
}

// speed is how many bytes of memory per second both ends are foreseen to handle over paths of that rate (0: as many as
// those carry), and whether that is a guess (noteForecast): copies of running guests tell of a guest that stands still
// only that it is no slower, as its processors are those that copy.
func (m *outgoing) speed(rate int64, basis *sample.Basis) (speed int64, unsure bool) {
	if m.work.facts.Accel == "tcg" {
		speed = emulatedSpeed
	}
	speed = m.a.records.Copied(m.plan.To, rate, false).Foresee(speed)
	if m.plan.Mode != "stopcopy" || speed == 0 {
		return speed, false
	}
	stopped := m.a.records.Copied(m.plan.To, rate, true)
	if shown, _ := stopped.Speed(); shown > 0 {
		return stopped.Foresee(speed), false
	}
	if basis != nil && basis.Fastest > speed {
		return policy.Between(speed, basis.Fastest), true
	}
	return speed, false
}

// emulatedSpeed is how many bytes of an emulated guest's memory, zeros left out, both ends handle per second, as long as no
// copy between these hosts has shown it: what a machine of two processors did that was both of them (docs/experiments.md).
// Without emulation the paths are what is waited for.
const emulatedSpeed = 50e6
