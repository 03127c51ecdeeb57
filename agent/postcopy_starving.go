package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"godwit/agent/care"
	"godwit/agent/limits"
	"godwit/migration"
	"godwit/transfer/inlet"
	"godwit/vm"
)

// A guest that may run before its pages are there can wait for one when nobody brings them: its lanes went with
// an agent, and QEMU answers nobody until that page comes.

// couldRun says whether the destination has all that it needs to run the guest, though
// pages are missing that are sent again. It waits for the answer until ctx ends.
func (m *outgoing) couldRun(ctx context.Context) bool {
	if !mayHandEarly(m.plan) {
		return false
	}
	for {
		answer, err := m.askLanding(ctx)
		switch {
		case ctx.Err() != nil:
			return true // asked again with the release
		case err == nil && answer.Status == vm.Incoming:
			return false
		case err == nil && (answer.Status != "" || answer.Vanished != "" || answer.Landing == migration.Gone):
			return true
		}
		sleep(ctx, refillPause)
	}
}

// couldRunSoon is couldRun for as long as one try of the release: whoever calls it in the release must tell of a
// doubt where the destination says nothing for that time.
func (m *outgoing) couldRunSoon(ctx context.Context) bool {
	ctx, cancel := limits.Release.On(ctx)
	defer cancel()
	return m.couldRun(ctx)
}

// resendPages brings pages to a destination whose agent was started again before the guest was known to run there: QEMU may
// wait for a page, and answer nobody until it comes, so that nobody can say whether it runs, while the
// lanes went with the agent. It is for a release that has no answer; followed is closed when nobody else touches the
// lanes. It says whether it did anything.
func (m *outgoing) resendPages(ctx context.Context, followed <-chan struct{}) bool {
	if !mayHandEarly(m.plan) || !m.guest.Alive() && !m.qemuGone() {
		return false
	}
	if lanes := m.work.lanes; lanes != nil {
		select {
		case <-lanes.Done():
		default:
			return false
		}
		if lanes.Err() == nil {
			return false
		}
	}
	answer, err := m.askLanding(ctx)
	began := answer.Landing == migration.Waiting || answer.Landing == migration.Starting
	if err != nil || !began || answer.Status != "" || answer.Vanished != "" {
		return false
	}
	select {
	case <-followed:
	case <-ctx.Done():
		return false
	}
	m.work.pagesResent.Store(true)
	if _, err := m.refill(ctx); err != nil {
		if errors.Is(err, errLost) {
			m.lose(ctx, err)
			return false
		}
		m.rec.NoteOnce("post-copy waits: " + err.Error())
		sleep(ctx, refillPause)
		return false
	}
	m.rec.NoteOnce(fmt.Sprintf("%s waits for pages before it can say whether the guest runs: they are sent by another migration of the stopped guest", m.plan.To))
	return true
}

// startsInVain says whether a guest is being started here that never will be whole, as its source says.
func (m *incoming) startsInVain(in migration.Input) bool {
	state := m.snapshot()
	return in.Kind == migration.Lose && state.Landing == migration.Starting && (in.Epoch == 0 || in.Epoch == state.Epoch)
}

// runsOnceFed waits for a QEMU that answers nobody as it waits for a page which is still to come, as where every path
// was cut just then, and says whether the guest runs. ctx ends where the source says that pages are nowhere any more.
func (m *incoming) runsOnceFed(ctx context.Context) bool {
	for m.work.guest.Alive() && m.misses(ctx) && ctx.Err() == nil && m.a.ctx.Err() == nil {
		ask, cancel := limits.Status.On(ctx)
		status, err := m.work.guest.Machine().Status(ask)
		cancel()
		if err == nil {
			return !neverRan(status) || m.letRun(ctx) == nil // it may not have come to be asked
		}
		m.rec.NoteOnce("QEMU waits for pages before it says whether the guest runs")
		sleep(ctx, refillPause)
	}
	return false
}

// inletOf is what the inlet of the guest in dir has: whether QEMU's connection was handed to it, and how many pages the
// guest misses. Where there is no inlet any more, nothing. The error is that this is not known, as where the host has
// nothing left to ask by, or it is slow to answer for want of memory.
func inletOf(ctx context.Context, dir string) (begun bool, missing uint64, err error) {
	if _, err := os.Lstat(inletSocket(dir)); errors.Is(err, fs.ErrNotExist) {
		return false, 0, nil
	}
	c, err := inlet.Dial(ctx, inletSocket(dir))
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return false, 0, nil
	case err != nil:
		return false, 0, err
	}
	defer c.Close() //nolint:errcheck // it goes on
	if !c.Begun {
		return false, 0, nil
	}
	return true, c.Missing.Left(), nil
}

// noteStarved notes a guest that misses pages, until its migration goes on.
func (a *Agent) noteStarved(h care.Held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starved == nil {
		a.starved = map[string]care.Held{}
	}
	a.starved[h.Dir] = h
}

// starvedAreSilent is for when every migration goes on that does: guests that miss pages still, such as one whose
// journal cannot be read, are waited for as any whose QEMU does not answer, and told of.
func (a *Agent) starvedAreSilent() {
	a.mu.Lock()
	left := a.starved
	a.starved = nil
	a.mu.Unlock()
	for _, h := range left {
		a.guests.NoteSilent(h)
	}
}

// keptStarving is what an earlier agent has kept of a guest that misses pages; false: it had not started it here.
func (a *Agent) keptStarving(held care.Held) (_ care.Held, kept bool) {
	a.mu.Lock()
	delete(a.starved, held.Dir)
	a.mu.Unlock()
	if waited, ok := a.guests.Silent(held.Description.Name); ok && waited.Dir == held.Dir {
		a.guests.Answers(held.Description.Name) // nobody else waits for it
		return waited, true
	}
	all, _ := a.guests.Remembered() // what cannot be read was said
	for _, h := range all {
		if h.Dir == held.Dir {
			return h, true
		}
	}
	return held, false
}
