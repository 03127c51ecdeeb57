package agent

import (
	"context"
	"net/netip"
	"time"

	"godwit/agent/limits"
	"godwit/agent/talk"
	"godwit/netstate/mptcp"
)

// What waits in QEMU's connections is mostly of pages that the guest has written to again since, and would take its
// part of the pause all the same. So just before its guest is stopped QEMU is let write little more than keeps the
// shortest path busy, until the rest has left; once it stands still what is left is sent as fast as before. Longer paths
// carry less between, which is little time: what the guest writes then is foreseen as if nothing of it were sent.

const (
	leastSettled = 64 << 10              // bytes that may wait then, beside what is on its way
	settleEvery  = 20 * time.Millisecond // between two looks at what waits
)

// restBytes is how much waits and is on its way once QEMU's connections came to rest, bytes, where the paths carry so
// many per second.
func (m *outgoing) restBytes(carried int64) int64 {
	return leastSettled + int64(float64(carried)*m.leastTrip().Seconds())
}

// ownRests says whether QEMU's connections come to rest before its guest is stopped: where they cannot be bounded, all
// that waits in them is sent in the pause.
func (m *outgoing) ownRests() bool {
	return m.plan.Direct() && m.plan.Mode != "stopcopy" && m.work.ownQueue.kept > 0
}

// timeToRest is how long that takes as they are now.
func (m *outgoing) timeToRest(waits, carried int64) time.Duration {
	if carried <= 0 || !m.ownRests() {
		return 0
	}
	return time.Duration(float64(max(0, waits-m.restBytes(carried))) / float64(carried) * float64(time.Second))
}

// asksBeforeStop is how long a guest runs on for what is asked for, and awaited, between the verdict and its stop: an
// answer, while QEMU's connections come to rest, and what its home has sent here.
func (m *outgoing) asksBeforeStop() time.Duration {
	q := &m.work.ownQueue
	longer := max(m.timeToRest(q.waits, q.rate), m.pauseRTT())
	if m.comesHome() {
		longer += 2 * m.pauseRTT() // the call, and the echo
	}
	return longer
}

// queued is how long what waits in QEMU's connections takes once they came to rest, over paths of so many bits per
// second.
func (m *outgoing) queued(rate int64) time.Duration {
	if !m.plan.Direct() || rate <= 0 {
		return 0
	}
	return time.Duration(leastSettled * 8 * float64(time.Second) / float64(rate))
}

// bringOwnToRest has QEMU's own connections come to rest. Over paths that got slow it goes on all the same.
func (m *outgoing) bringOwnToRest(ctx context.Context) {
	q := &m.work.ownQueue
	to, ok := talk.QEMUAddress(m.work.prepared.Memory)
	if !ok || q.rate <= 0 || !m.ownRests() {
		return
	}
	begun := time.Now()
	ctx, cancel := limits.Settle.On(ctx)
	defer cancel()
	until := begun.Add(2*m.timeToRest(q.waits, q.rate) + m.pauseRTT())
	if err := q.drainTo(ctx, until, m.guest.Machine().PID(), to, m.restBytes(q.rate)); err != nil && m.guest.Alive() {
		m.rec.Note("what waits in QEMU's own connections is sent in the pause, which may make it longer: " + err.Error())
	}
	m.rec.Took("settle memory", begun)
}

// drainTo returns when no more than so many bytes of process pid's connections wait or are on their way, or at until.
// What they may hold shrinks with what they do: at once it would keep all paths from sending.
func (q *ownQueue) drainTo(ctx context.Context, until time.Time, pid int, to netip.AddrPort, most int64) error {
	for {
		if _, err := q.ask(to, 0); err != nil {
			return err
		}
		q.short.Store(true)
		if _, err := mptcp.LimitSend(pid, to, int(max(most, q.waits/2)/2)); err != nil { // the kernel doubles it
			return err
		}
		if q.waits <= most || time.Now().After(until) || !sleep(ctx, settleEvery) {
			return nil
		}
	}
}

// widen lets QEMU's connections hold as much as before they came to rest. Where that failed it is done when it is asked
// for again.
func (q *ownQueue) widen(pid int, to netip.AddrPort) error {
	if !q.short.Load() {
		return nil
	}
	_, err := mptcp.LimitSend(pid, to, int(q.kept))
	q.short.Store(err != nil)
	return err
}

// widenOwn is for a guest that stands still, and a QEMU that looks at once: what is left is sent as fast as the paths
// carry it.
func (m *outgoing) widenOwn() {
	to, _ := talk.QEMUAddress(m.work.prepared.Memory)
	if err := m.work.ownQueue.widen(m.guest.Machine().PID(), to); err != nil {
		m.rec.NoteOnce("what waits in QEMU's own connections stays bounded, which may make the pause longer: " + err.Error())
	}
}
