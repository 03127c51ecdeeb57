package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"godwit/agent/care"
	"godwit/agent/described"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu"
)

// A guest that runs before its pages are there is lost when these are nowhere any more: its source's QEMU is gone,
// and so are the lanes that had read them all. Only the source knows that, and only of itself: one that does
// not answer may have everything. It says so, and the destination ends what it has of the guest: that would
// stand still at the first page that it touches, with its clients waiting and its disks taken, and never go on. Its
// disks are kept on both hosts.

// errLost says that pages of the guest are nowhere any more.
var errLost = errors.New("the guest is lost")

// qemuGone says that the guest's QEMU here is gone, for sure.
func (m *outgoing) qemuGone() bool {
	return m.lost || m.guest.Machine() != nil && !m.guest.Alive()
}

// pagesLost is the error of a guest that misses so many pages, which were in its QEMU here, and not in any lanes.
func (m *outgoing) pagesLost(missing uint64) error {
	how := "was lost (with its host, or while no agent ran)"
	if !m.lost {
		exit := m.guest.Machine().Exit()
		how = "was killed or broke (" + cmp.Or(exit.Reason, exit.Detail) + ")"
	}
	text := fmt.Sprintf("guest %s is lost: its QEMU on %s %s before the last %d of its pages were on %s; start it anew", m.plan.Guest, m.plan.From, how, missing, m.plan.To)
	switch {
	case len(m.guest.Held().Description.Disks) == 0:
	case m.state.Reached() == migration.AwaitLanding: // it has run there
		text += ": its disks are kept on both hosts, and those on " + m.plan.To + " are the newer ones"
	case m.snapshot().Released(): // it may have
		text += fmt.Sprintf(": its disks are kept on both hosts if it ran on %s, and those there are the newer ones then", m.plan.To)
	default:
		text += ": its disks are kept"
	}
	return errors.Join(errLost, &migration.Problem{Code: migration.CodeGuestGone, Text: text})
}

// lose tells the machine that the guest is lost.
func (m *outgoing) lose(ctx context.Context, err error) {
	var why *migration.Problem
	if !errors.As(err, &why) {
		return
	}
	select {
	case m.inbox <- migration.Input{Kind: migration.Lose, Problem: why}:
	case <-ctx.Done():
	}
}

// misses says whether pages of the guest are missing here. Whoever has asked knows that no more of them come.
func (m *incoming) misses(ctx context.Context) bool {
	if !mayHandEarly(m.plan) || m.rec.Snapshot().MemoryDone != 0 {
		return false
	}
	if lanes := m.lanes(); lanes != nil {
		select {
		case <-lanes.Done():
			return lanes.Err() != nil
		default:
			return true
		}
	}
	if _, missing, _ := inletOf(ctx, m.dir); missing > 0 { // what is not known its QEMU may know
		return true
	}
	g := m.visible()
	if g == nil || !g.Alive() {
		return m.snapshot().Vanished // nothing is known of one that does not answer
	}
	ask, cancel := limits.Status.On(ctx)
	defer cancel()
	p, err := g.Machine().Progress(ask)
	return err == nil && p.Status != vm.Completed
}

// forsakenAfter is for how long a source must have been silent, which is asked all the while (inquireAfter), before a
// person may give up what waits for its pages.
const forsakenAfter = 30 * time.Second

// forsaken says that the guest may run here, misses pages, and its source is silent. Nobody but a person knows whether
// it comes back.
func (m *incoming) forsaken(ctx context.Context) bool {
	state := m.snapshot()
	mayRun := state.Landing == migration.Starting || state.Landing == migration.Adopting || state.Landing == migration.Leaving || m.starving.Load()
	return mayRun && !state.Refused() && m.silentFor() > forsakenAfter && m.misses(ctx)
}

// lostThere is the source's reason, or one for it.
func (m *incoming) lostThere(why *migration.Problem) *migration.Problem {
	if record.SaneProblem(why); why != nil && why.Text != "" {
		return why
	}
	return &migration.Problem{Code: migration.CodeGuestGone, Text: fmt.Sprintf("guest %s is lost: %s has pages no more that it misses on %s", m.plan.Guest, m.plan.From, m.plan.To)}
}

// toldLost says that the source has said that the guest is lost, or a person has given it up, while its QEMU answered
// nobody: it is gone by our doing.
func (m *incoming) toldLost() bool {
	return slices.ContainsFunc(m.before, func(in migration.Input) bool { return in.Kind == migration.Lose || in.Kind == migration.Disown })
}

// endSilent ends a QEMU that answers nobody.
func (m *incoming) endSilent(held care.Held) {
	socket := ""
	if len(held.Description.Start) > 0 {
		socket, _ = described.Sockets(held.Dir, held.Description)
	}
	if err := qemu.KillSilent(held.Dir, socket); err != nil {
		m.a.log.Error("end a guest that is not to run here", "guest", m.plan.Guest, "error", err)
	}
}
