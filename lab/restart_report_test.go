package lab

import (
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/migration"
)

// TestReportOutlivesAgents: an agent that is killed once the guest was let go, and started again,
// tells what the migration had come to before, and what its other host knows.
func TestReportOutlivesAgents(t *testing.T) {
	exactly(t)
	p := newTrial(t, rebootWorld, func(string, *config.Config) {})
	p.ticks("phone", "web")
	for _, c := range []struct {
		from, to, killed, at string
		unknown              []string // what nobody can know
	}{
		// It may not have written down what was sent before the guest ran there.
		{from: "montreal", to: "sanjose", killed: "montreal", at: string(migration.TargetResume), unknown: []string{"wire_bytes", "data_path"}},
		{from: "sanjose", to: "montreal", killed: "sanjose", at: string(migration.Handover)},
		{from: "montreal", to: "sanjose", killed: "montreal", at: string(migration.Settle)},
		{from: "sanjose", to: "montreal", killed: "montreal", at: string(migration.TargetResume)},
		{from: "montreal", to: "sanjose", killed: "sanjose", at: string(migration.Handover)},
	} {
		p.from = c.from
		id := p.began(migration.Request{Guest: "web", To: c.to, Downtime: 5 * time.Second})
		p.reaches(id, c.at)
		p.restart(c.killed, nil)
		rep := p.ends(id, 40*time.Second)
		name := c.killed + " was killed in " + c.at
		if rep.Outcome != migration.Completed {
			t.Fatalf("%s: %s, %v", name, rep.Outcome, rep.Problem)
		}
		p.tellsAll(name, &rep, c.unknown)
	}
	p.ticksWhole()
}

// tellsAll checks a completed migration's report for figures that are not there, but for those that are
// unknown, or cannot be.
func (p *trial) tellsAll(name string, rep *record.Report, unknown []string) {
	p.Helper()
	down, counted := rep.VMDowntime()
	for what, there := range map[string]bool{
		"resumed": rep.Resumed != 0, "memory_done": rep.MemoryDone != 0, "paused": rep.Paused != 0, "handed": rep.Handed != 0,
		"ticks": counted, "qemu_downtime": rep.QEMUDowntimeMS != nil, "rounds": rep.Rounds > 0, "memory_bytes": rep.MemoryBytes > 0,
		"wire_bytes": len(rep.WireBytes) > 0, "predicted": rep.Predicted != nil, "tunnel_up": rep.TunnelUp != 0, "data_path": rep.DataPath != nil,
	} {
		if !there && !slices.Contains(unknown, what) {
			p.Errorf("%s: no %s in the report", name, what)
		}
	}
	var phases []migration.Phase
	for i, span := range rep.Phases {
		phases = append(phases, span.Name)
		if span.End < span.Start || i > 0 && span.Start != rep.Phases[i-1].End {
			p.Errorf("%s: phase %s from %d to %d", name, span.Name, span.Start, span.End)
		}
	}
	if len(phases) != len(migration.Phases) {
		p.Errorf("%s: phases %v", name, phases)
	}
	// The guest ran between the stop and the end of its downtime, by whichever clock.
	paused := time.Duration(rep.Resumed - rep.Paused)
	if counted && (paused <= 0 || (paused-down).Abs() > 150*time.Millisecond) {
		p.Errorf("%s: it stood still for %v by its own counter, and %v by its hosts", name, down, paused)
	}
	p.Logf("%s: %v by its counter, %v by its hosts; %d phases, %d steps; notes: %q", name, down, paused, len(phases), len(rep.Critical), rep.Notes)
}
