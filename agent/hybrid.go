package agent

import (
	"context"
	"fmt"
	"time"

	"godwit/migration"
	"godwit/policy"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// The modes `hybrid` and `postcopy` let the guest run at the destination before its pages
// are there; our own data path brings what it touches first. From the release until the
// last page the source's proxy has pages that nobody else has: the path may fail and come
// back, but the source's agent and host must not.

// mayHandEarly says whether p's guest may run before its pages are there.
func mayHandEarly(p migration.Plan) bool {
	return ownPath(p) && (p.Mode == "hybrid" || p.Mode == "postcopy")
}

// enoughRounds is for how many times the first round's duration hybrid goes on copying:
// more is waste.
const enoughRounds = 1.5

// handEarly decides at each look whether the rest follows the guest.
func (m *outgoing) handEarly(look policy.Look, verdict policy.Verdict) bool {
	if !mayHandEarly(m.plan) || verdict == policy.Go {
		return false
	}
	if look.Round <= 1 { // all was not read once yet: the pause would be as long as that
		return false
	}
	if m.work.firstRound == 0 {
		m.work.firstRound = look.At
	}
	early := m.plan.Mode == "postcopy" || verdict == policy.GiveUp || look.At > time.Duration(enoughRounds*float64(m.work.firstRound))
	if early {
		m.work.early = true
		m.rec.note(fmt.Sprintf("post-copy: %.1f MB follow the guest, as it writes %.1f MB/s and the paths carry %.1f MB/s",
			float64(look.Remaining)/1e6, float64(look.DirtyRate)/1e6, float64(look.Goodput)/1e6))
	}
	return early
}

// beginStop tells our own data path that the guest is about to be stopped.
func (m *outgoing) beginStop() {
	switch {
	case m.work.lanes == nil:
	case m.work.early && m.work.lanes.PostCopy():
	default:
		m.work.lanes.Hurry()
	}
}

// awaitLoaded waits until the guest could run: all of it is here, or, where that is enough,
// its devices and the list of what is missing.
func (m *incoming) awaitLoaded(ctx context.Context, machine vm.Machine) (vm.Progress, error) {
	if !mayHandEarly(m.plan) {
		return machine.AwaitMigration(ctx)
	}
	type end struct {
		vm.Progress
		err error
	}
	ended := make(chan end, 1)
	go func() {
		p, err := machine.AwaitMigration(ctx)
		m.rec.edit(func(r *Report) { r.MemoryDone = time.Now().UnixNano() })
		ended <- end{p, err}
	}()
	select {
	case e := <-ended:
		return e.Progress, e.err
	case <-m.lanes().HandedOver():
	}
	for {
		if status, err := machine.Status(ctx); err == nil && status == vm.Paused {
			return vm.Progress{}, nil
		}
		select {
		case e := <-ended:
			return e.Progress, e.err
		case <-time.After(time.Millisecond):
		}
	}
}

func (m *incoming) lanes() *proxy.Destination {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.work.lanes
}

// awaitLastPage waits until the guest that runs here has all its pages.
func (m *incoming) awaitLastPage(ctx context.Context) error {
	lanes := m.lanes()
	if !mayHandEarly(m.plan) || lanes == nil {
		return nil
	}
	select {
	case <-lanes.Done():
		return lanes.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
