package agent

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/vm"
)

// cutAtFlip is a migration whose lanes are cut as its switch begins, over paths that it shares; they are back once that
// is closed. Its QEMU's copy goes on.
func cutAtFlip(t *testing.T, qemu vm.Machine, back <-chan struct{}, shared []peer.Path) *outgoing {
	t.Helper()
	limit := limits.Settle
	limits.Settle.For = time.Millisecond
	t.Cleanup(func() { limits.Settle = limit })
	m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.a.config.Patience = time.Hour
	m.a.rightOfWay.Join(m.plan.ID, shared, func(int64) {})
	m.guest.RunsIn(qemu)
	laned(t, m, back)
	m.link = peertest.Link(t, "paris", n.Host, nil, nil)
	m.setState(sourceDoing(t, migration.Flip))
	return m
}

// looked is a QEMU whose copy goes on, and that tells of each look at it.
type looked struct {
	halted
	look func()
}

func (l *looked) Progress(context.Context) (vm.Progress, error) {
	l.look()
	return vm.Progress{Status: vm.Active, Rounds: 2}, nil
}

// TestCopyOnGivesWay: others over the same uplinks give way to a guest that is about to be stopped, and not while it
// runs on, and is copied.
func TestCopyOnGivesWay(t *testing.T) {
	shared := []peer.Path{{Local: loopback, Rate: 100e6}}
	var limited int64
	var seen []int64
	back, looks := make(chan struct{}), 0
	m := cutAtFlip(t, &looked{halted{stuck{gone: gone{done: make(chan struct{})}}}, func() {
		seen = append(seen, limited)
		if looks++; looks == 5 {
			close(back)
		}
	}}, back, shared)
	m.a.rightOfWay.Join("m-00000002", shared, func(bits int64) { limited = bits })
	m.flip(t.Context()) //nolint:errcheck // there is no detour
	got := slices.Compact(seen) // a lane may be silent again, on a busy machine
	if len(got) < 3 || got[0] != 10e6 || got[1] != 0 || got[len(got)-1] != 10e6 {
		t.Errorf("another was limited to %v", got)
	}
}

// TestCopyOnKeepsTheReport: an agent that is killed after a copy which went on in the switch leaves to the next what
// the report had come to, and what was written down meanwhile is no step of the guest's switch.
func TestCopyOnKeepsTheReport(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	dir := t.TempDir()
	log, err := journal.Create(dir, m.plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the test ends
	m.log, m.state = log, sourceDoing(t, migration.AskSuspend)
	m.rec.Note("seen before the switch")
	m.beginWire()
	for _, done := range []migration.Effect{migration.AskSuspend, migration.Flip, migration.Pause} {
		if _, err := m.step(migration.Input{Kind: migration.Done, Effect: done}); err != nil {
			t.Fatal(err)
		}
		if done == migration.AskSuspend {
			for range 3 { // as often as the copy is long
				m.work.wireTold.last = time.Time{}
				m.rec.Edit(func(r *record.Report) { r.Rounds++ })
				m.keepWire()
			}
		}
	}
	var j written.Source
	if err := journal.Read(dir, m.plan.ID, &j); err != nil {
		t.Fatal(err)
	}
	var kept record.Report
	if err := json.Unmarshal(j.Report, &kept); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(kept.Notes, "seen before the switch") || kept.Rounds != 3 || len(kept.Phases) == 0 {
		t.Errorf("the record of letting go has notes %q, %d rounds, phases %v", kept.Notes, kept.Rounds, kept.Phases)
	}
	if got, want := steps(m), []string{"journal: flip begins", "journal: pause begins", "journal: let go"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
}
