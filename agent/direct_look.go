package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/netstate/mptcp"
	"godwit/policy"
	"godwit/vm"
)

// A QEMU that sends by connections of its own, and is held off from its switchover, goes over
// memory again and again, as fast as its sockets take it. What waits there, up to 10 MB and
// more of MPTCP, is sent before the guest's last pages. So it is counted, and after the first
// round kept short.

// queueKept is how much sending may wait in QEMU's connections after the first round, beside
// what is on its way; leastKept and mostKept bound both together, bytes.
const (
	queueKept = 50 * time.Millisecond
	leastKept = 128 << 10
	mostKept  = 256 << 20
)

// keptAgain is how often what they may keep is looked at, and keptChange by what share it has
// changed when they are told.
const (
	keptAgain  = 500 * time.Millisecond
	keptChange = 0.3
)

// waitsAgain is how often what waits is asked for: a host may have thousands of sockets, of which
// the kernel lists all.
const waitsAgain = 50 * time.Millisecond

// ownQueue is what is known of QEMU's own connections.
type ownQueue struct {
	at    time.Time // when what they may keep was looked at
	kept  float64   // that, bytes; 0: as the kernel has it, or not known, as it could not be set
	asked time.Time
	waits int64 // bytes, then
	// waited is for how long more waited than plenty, bytes: it is time in which QEMU had something to send all along.
	waited time.Duration
	plenty float64 // 0: not known
	rate   int64   // what the paths carry, by what waited then, bytes per second
	told   bool    // that something of it does not work, or did not once
	round  int64   // that was seen last

	short atomic.Bool // they came to rest, and hold less than kept
}

// ask finds out what QEMU has written and the other end has not got, where so long is over since it did. now says that
// it did.
func (q *ownQueue) ask(to netip.AddrPort, since time.Duration) (now bool, err error) {
	at := time.Now()
	if at.Sub(q.asked) < since {
		return false, nil
	}
	waits, err := mptcp.Waiting(to)
	if err != nil {
		return false, err // it is as it was; the next look asks again
	}
	if q.plenty > 0 && float64(min(waits, q.waits)) >= q.plenty {
		q.waited += at.Sub(q.asked)
	}
	q.asked, q.waits = at, waits
	return true, nil
}

// directLook is a look at memory that QEMU sends by connections of its own.
func (m *outgoing) directLook(p vm.Progress) policy.Look {
	if m.work.qemuSent != nil {
		m.work.qemuSent.Store(p.Transferred)
	}
	look := policy.Look{Turn: p.Rounds, Remaining: p.Remaining, DirtyRate: p.DirtyRate}
	to, ok := talk.QEMUAddress(m.work.prepared.Memory)
	if !ok { // it was checked in prepare
		return look
	}
	q, at := &m.work.ownQueue, time.Now()
	unbounded := m.keepShort(to, p.Rounds)
	// What is on its way, and half of what they are to keep beside that, however fast the paths are as far as is known.
	q.plenty = float64(q.rate) * (m.pauseRTT() + queueKept/2).Seconds()
	now, err := q.ask(to, waitsAgain)
	look.Goodput, look.Remaining = q.rate, p.Remaining+m.aheadSettled()
	fits := look.Goodput > 0 && look.Downtime(m.pauseRTT()) <= m.plan.Downtime
	if fits && p.Rounds != q.round && !now && err == nil { // it decides
		now, err = q.ask(to, 0) // what is not left any more may wait since
	}
	q.round = p.Rounds
	// What was sent and what waits are of one moment: else what QEMU wrote between them counts as carried. Where nobody
	// tells what waits, what QEMU writes is all that is known.
	if now || err != nil {
		waited := q.waited
		if err != nil {
			waited = uplinks.NotKnown
		}
		q.rate = m.work.memoryRate.See(at, p.Transferred-q.waits, waited, m.pauseRTT())
		look.Goodput, look.Remaining = q.rate, p.Remaining+m.aheadSettled()
	}
	if err = cmp.Or(err, unbounded); err != nil && !q.told {
		q.told = true
		m.rec.Note("what waits in QEMU's own connections is not known, or not bounded, and may make the pause longer: " + err.Error())
	}
	return look
}

// ahead is how much of so many bytes that the other end has not acknowledged is sent before what comes next, where so
// many per second are carried. What is on its way is there before that, however little later: half a round trip, which
// counts for all.
func (m *outgoing) ahead(unacknowledged, carried int64) int64 {
	onItsWay := int64(float64(carried) * m.leastTrip().Seconds())
	return max(0, unacknowledged-onItsWay)
}

// aheadSettled is ahead of what will wait in QEMU's own connections as its guest is stopped; see bringOwnToRest.
func (m *outgoing) aheadSettled() int64 {
	q := &m.work.ownQueue
	if q.rate > 0 && m.ownRests() {
		return m.ahead(min(q.waits, m.restBytes(q.rate)), q.rate)
	}
	return m.ahead(q.waits, q.rate)
}

// keepShort bounds what waits in QEMU's connections to what the longest of their ways needs.
func (m *outgoing) keepShort(to netip.AddrPort, round int64) error {
	q, now := &m.work.ownQueue, time.Now()
	if round <= 1 || q.rate == 0 || now.Sub(q.at) < keptAgain {
		return nil
	}
	q.at = now
	rtt, err := longest(to)
	if err != nil {
		return err
	}
	rtt = max(rtt, m.pauseRTT())
	want := min(max(leastKept, float64(q.rate)*(rtt+queueKept).Seconds()), mostKept)
	if change := want - q.kept; q.kept > 0 && change < q.kept*keptChange && -change < q.kept*keptChange {
		return nil
	}
	n, err := mptcp.LimitSend(m.guest.Machine().PID(), to, int(want))
	if err == nil && n == 0 {
		err = fmt.Errorf("QEMU has none to %s", to)
	}
	if q.kept = want; err != nil {
		q.kept = 0 // it is tried again
	}
	return err
}

// longest is the round trip of the longest way of the connections to an address, without queues.
func longest(to netip.AddrPort) (rtt time.Duration, err error) {
	connections, plain, err := mptcp.All()
	for _, s := range plain {
		if s.Remote == to {
			rtt = max(rtt, s.LeastRTT)
		}
	}
	for _, c := range connections {
		for _, s := range c.Subflows {
			if c.Remote == to && s.State == mptcp.StateEstablished {
				rtt = max(rtt, s.LeastRTT)
			}
		}
	}
	return rtt, err
}
