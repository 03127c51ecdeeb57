package agent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"godwit/agent/config"
	"godwit/agent/sample"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer/pages"
)

// What a page of zeros costs: our own data path names runs of them, QEMU each.
const zeroOwn, zeroQEMU = 0.1, 9

// predict foresees what the migration will cost, as far as can be known before the first byte. basis is what a sample
// of memory told; nil: nothing did.
func (m *outgoing) predict(n config.Neighbour, basis *sample.Basis) {
	memory := m.work.facts.Memory
	facts := policy.Facts{
		Memory: memory, Content: min(m.work.offer.Touched, memory), Ratio: 1, Zero: zeroQEMU,
		Disk: diskData(m.guest.Held.Description.Disks), Rate: m.carried(n), RTT: m.work.rtt, Budget: m.plan.Downtime,
		Tail: m.tailBytes(), DirtyRate: m.work.dirty, MostThrottle: m.a.config.MostThrottle(m.plan),
		Stopped: m.plan.Mode == "stopcopy", Follows: m.plan.Mode == "hybrid", Early: m.plan.Mode == "postcopy",
	}
	if ownPath(m.plan) {
		facts.Zero = zeroOwn
	}
	if m.plan.Transfer == "qemu-multifd" || ownPath(m.plan) {
		facts.Ratio = 0.5 // zstd on the memory of ordinary guests (docs/measurements.md)
	}
	if basis != nil {
		facts.Memory, facts.Content, facts.Known = basis.Bytes, basis.Content, basis.Known
		facts.Ratio, facts.Again, facts.DirtyRate, facts.Written = basis.Ratio, basis.Again, basis.DirtyRate, basis.Written
	}
	if ownPath(m.plan) {
		if m.work.facts.Accel == "tcg" {
			facts.Speed = emulatedSpeed
		}
		facts.Speed = m.a.copiedTo(m.plan.To, facts.Rate).Foresee(facts.Speed)
	}
	requested, _ := m.rec.moments()
	facts.Spent = time.Since(time.Unix(0, requested))
	f := policy.Predict(facts)
	m.noteForecast(f)
	m.rec.edit(func(r *Report) {
		r.Predicted = &Prediction{f.Migration.Seconds(), float64(f.Downtime.Microseconds()) / 1000, f.WireBytes, f.Throttled, basis}
		r.MemoryBytes = memory
	})
}

// emulatedSpeed is how many bytes of an emulated guest's memory, zeros left out, both ends handle per second, as long as no
// copy between these hosts has shown it: what a machine of two processors did that was both of them (docs/measurements.md).
// Without emulation the paths are what is waited for.
const emulatedSpeed = 50e6

// copiedTo is the last copy of memory to that host over our own data path, since this agent was started; paths there carry rate.
func (a *Agent) copiedTo(to string, rate int64) policy.Copied {
	a.mu.Lock()
	records := slices.Collect(maps.Values(a.records))
	a.mu.Unlock()
	var last policy.Copied
	var ended int64
	for _, rec := range records {
		if copied, at := rec.copied(to); at > ended {
			last, ended = copied, at
		}
	}
	if last.Rate = cmp.Or(last.Rate, rate); rate > 0 {
		last.Rate = min(last.Rate, rate)
	}
	return last
}

// copied is its copy of memory, if it went to that host over our own data path, and when it ended; 0: it did not.
func (r *Record) copied(to string) (c policy.Copied, ended int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := &r.report
	if rep.From != r.host || rep.To != to || rep.Outcome != migration.Completed || rep.DataPath == nil || rep.Mode == "stopcopy" {
		return c, 0
	}
	for _, span := range rep.Phases {
		if span.Name == migration.Copy {
			c.Took = time.Duration(span.End - span.Start)
		}
	}
	for coding, n := range rep.DataPath.Pages {
		if coding != codingNames[pages.Zero] {
			c.Handled += n * pages.Size
		}
	}
	for _, bytes := range rep.WireBytes {
		c.Wire += bytes
	}
	c.Wire, c.Rate = c.Wire-rep.DiskBytes, r.plan.Bandwidth
	return c, rep.Ended
}
