package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// The modes `hybrid` and `postcopy` let the guest run at the destination before its pages
// are there; our own data path brings what it touches first. From the release until the
// last page the source's QEMU and its proxy have pages that nobody else has: paths may fail and come back,
// and agents end and be started again (postcopy_refill.go), or that QEMU end, but not both (postcopy_lost.go).

// mayHandEarly says whether p's guest may run before its pages are there.
func mayHandEarly(p migration.Plan) bool {
	return p.OwnPath() && (p.Mode == "hybrid" || p.Mode == "postcopy")
}

// handEarly decides at each look whether the rest follows the guest: the verdict is to go then, and else what it was. A
// copy that meets its budget by the time at which hybrid ends it goes, too, and nothing follows.
func (m *outgoing) handEarly(look policy.Look, verdict policy.Verdict, copying *policy.Copying) policy.Verdict {
	if !mayHandEarly(m.plan) || verdict == policy.Go {
		return verdict
	}
	if look.Turn <= 1 { // all was not read once yet: the pause would be as long as that
		return verdict
	}
	m.work.rounds.Sends(look)
	enough := policy.FollowRounds
	if m.work.chosen && copying.Gains() {
		enough = policy.FollowWhileGains
	}
	early := m.work.rounds.Past(look.At, enough)
	if m.plan.Mode == "postcopy" { // what was written meanwhile has to be read, too
		early = m.work.rounds.Enough(look.At, m.plan.Downtime)
	}
	early = early || verdict == policy.GiveUp || m.work.early || m.work.rounds.Ahead() // before hooks held the guest, too
	switch {
	case !early || m.opaque():
		return verdict
	case m.limitTooLow():
		return policy.GiveUp
	case m.plan.Mode == "hybrid" && copying.Fits():
		return policy.Go
	case m.plan.Mode == "hybrid" && !m.readAhead():
		return policy.Wait
	}
	why := fmt.Sprintf("after %.1f s the guest %s, the paths carry %.1f MB/s, and %.1f MB are left, a pause of %v: the downtime budget of %v is not met by copying first",
		look.At.Seconds(), m.writes(look), float64(look.Goodput)/1e6, float64(look.Remaining)/1e6, look.Downtime(copying.RTT).Round(time.Millisecond), m.plan.Downtime)
	if m.plan.Mode == "postcopy" {
		why = fmt.Sprintf("mode postcopy: all was read once after %.1f s, and %.1f MB are left", look.At.Seconds(), float64(look.Remaining)/1e6)
	}
	m.goEarly(why)
	return policy.Go
}

// leastTail is what the devices of the smallest guests take, as our own data path sends them, bytes (measured 6.7 KB).
const leastTail = 6 << 10

// limitTooLow says whether the migration's own limit of bandwidth alone makes any pause longer than its budget: what
// the guest's devices are goes before it runs.
func (m *outgoing) limitTooLow() bool {
	limit := m.bandwidth.Bytes()
	return limit > 0 && policy.Least(m.pauseRTT(), leastTail, limit) > m.plan.Downtime
}

// opaque says that nothing can follow the guest: QEMU's stream is passed on as it is, so that nobody knows its pages.
func (m *outgoing) opaque() bool { return m.work.lanes != nil && m.work.lanes.Stats().Opaque != "" }

// goEarly settles that the rest follows the guest, and says why, once.
func (m *outgoing) goEarly(why string) {
	if m.work.early {
		return
	}
	m.work.early = true
	m.rec.Note("post-copy: the rest of memory follows the guest: " + why)
	m.rec.Edit(func(r *record.Report) { r.PostCopy = &record.PostCopy{Why: why} })
}

// lookAgain looks at what is left just before the guest is stopped: since it was decided the switch was written
// down, packets were led away and the tap was drained, and the guest may have written far more than before. Where
// the rest may follow it, it does then. Mode precopy has no other means here: its packets wait at the destination
// already, and go on to do so while it would copy.
func (m *outgoing) lookAgain(ctx context.Context) {
	if !mayHandEarly(m.plan) || m.work.early || m.work.lanes == nil || m.opaque() {
		return
	}
	p, err := m.guest.Machine().Progress(ctx)
	if err != nil { // whoever stops it finds out as well
		return
	}
	m.handLate(m.copyLook(p, 0))
}

// handLate has the rest follow the guest where what is left has become too much.
func (m *outgoing) handLate(look policy.Look) {
	rtt := m.pauseRTT()
	if !look.Stretched(rtt, m.plan.Downtime) {
		return
	}
	m.goEarly(fmt.Sprintf("since the switch was decided the guest has written so much that its pause would take %v, of a downtime budget of %v: %.1f MB are left",
		look.Downtime(rtt).Round(time.Millisecond), m.plan.Downtime, float64(look.Remaining)/1e6))
}

// settleMemory is for the time just before packets are led away, while nobody waits yet: what the guest always
// writes to comes to rest, or, where the rest follows it, what is under way gets there, and takes less of the pause.
func (m *outgoing) settleMemory(ctx context.Context) {
	if m.work.lanes == nil {
		return
	}
	settle := m.work.lanes.Settle
	if m.work.early {
		settle = m.work.lanes.Drain
	}
	begun := time.Now()
	ctx, cancel := limits.Settle.On(ctx)
	defer cancel()
	settle(ctx)
	// A path may have been cut meanwhile: the guest runs on until it is back, or dead.
	for !m.lanesReady() && m.work.lanes.Err() == nil && sleep(ctx, lookEvery) {
	}
	m.rec.Took("settle memory", begun)
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
		if err == nil { // else pages are missing, and come by others
			m.rec.Edit(func(r *record.Report) { r.MemoryDone = m.rec.Now() })
		}
		ended <- end{p, err}
	}()
	select {
	case e := <-ended:
		return e.Progress, e.err
	case <-m.handedOver():
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

// handedOver is closed when QEMU was given its devices before its pages, also if that was
// by an earlier agent.
func (m *incoming) handedOver() <-chan struct{} {
	if lanes := m.lanes(); lanes != nil {
		return lanes.HandedOver()
	}
	handed := make(chan struct{})
	known := func() bool {
		m.refilling.Lock() // who asks an inlet cuts off the lanes that feed it
		defer m.refilling.Unlock()
		if m.lanes() != nil {
			close(handed)
			return true
		}
		begun, _, err := inletOf(m.a.ctx, m.dir)
		if begun {
			close(handed)
		}
		return err == nil
	}
	if !known() {
		m.a.actors.Go(func() {
			for sleep(m.a.ctx, latePause) && !known() {
			}
		})
	}
	return handed
}

// awaitLastPage waits until the guest that runs here has all its pages, by whichever lanes. One that
// ends before that needs no more of them: errEnded.
func (m *incoming) awaitLastPage(ctx context.Context) error {
	if !mayHandEarly(m.plan) {
		return nil
	}
	for {
		err := m.lastPageCame(ctx)
		if err == nil {
			m.lastPageIsHere()
			m.compareLate()
		}
		m.notePostCopy()
		switch {
		case !errors.Is(err, errPagesMissing):
			return err
		case m.endedByItself():
			return errEnded
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// pagesFollow says of a guest that runs here by that plan whether its last page may be missing.
func (m *incoming) pagesFollow(plan migration.Plan) bool {
	_, whole := m.rec.PagesFollow()
	return mayHandEarly(plan) && !whole
}

var errPagesMissing = errors.New("pages are missing still")

// lastPageCame looks once.
func (m *incoming) lastPageCame(ctx context.Context) error {
	if lanes := m.lanes(); lanes != nil {
		select {
		case <-lanes.Done():
			if lanes.Err() == nil {
				return nil
			}
		default:
			return errPagesMissing
		}
	}
	ask, cancel := limits.Status.On(ctx) // it may be blocked by a page that it waits for
	defer cancel()
	p, err := m.work.guest.Machine().Progress(ask)
	switch {
	case err != nil:
		return errPagesMissing
	case p.Status == vm.Completed:
		return nil
	case p.Status == vm.PostcopyPaused || p.Status == vm.Failed:
		return m.starved(string(p.Status))
	}
	return errPagesMissing
}

// starved says that the guest's pages cannot be brought any more.
func (m *incoming) starved(why string) error {
	return &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf(
		"guest %s: the process that brings its pages into QEMU on %s has ended (%s), and with it what is missing cannot be brought any more; it waits for ever where it touches that: end it, and start it anew",
		m.plan.Guest, m.plan.To, why)}
}
