package agent

import (
	"fmt"
	"net/netip"
	"time"

	"godwit/netstate/mptcp"
	"godwit/policy"
	"godwit/vm"
)

// A QEMU that sends by connections of its own, and is held off from its switchover, goes over
// memory again and again, as fast as its sockets take it. What waits there, up to 10 MB and
// more of MPTCP, is sent before the guest's last pages. So it is counted, and after the first
// round kept short.

// queueKept is how much sending may wait in QEMU's connections after the first round, beside
// what is on its way, and leastKept that in bytes at least.
const (
	queueKept = 50 * time.Millisecond
	leastKept = 128 << 10
)

// keptAgain is how often what they may keep is looked at, and keptChange by what share it has
// changed when they are told.
const (
	keptAgain  = 500 * time.Millisecond
	keptChange = 0.3
)

// ownQueue is what is known of QEMU's own connections.
type ownQueue struct {
	at   time.Time // when what they may keep was looked at
	kept float64   // that, bytes; 0: as the kernel has it
}

// directLook is a look at memory that QEMU sends by connections of its own.
func (m *outgoing) directLook(p vm.Progress, disk int64) policy.Look {
	look := policy.Look{Round: p.Rounds, Remaining: p.Remaining + disk, DirtyRate: p.DirtyRate}
	to, ok := qemuAddress(m.work.prepared.Memory)
	if !ok { // it was checked in prepare
		return look
	}
	waiting, err := mptcp.Waiting(to)
	look.Goodput = m.work.speed.see(time.Now(), p.Transferred-waiting)
	onItsWay := int64(float64(look.Goodput) * m.work.rtt.Seconds())
	look.Remaining += max(0, waiting-onItsWay)
	if err == nil {
		err = m.keepShort(to, look)
	}
	if err != nil {
		m.a.log.Warn("QEMU's connections", "migration", m.plan.ID, "error", err)
	}
	return look
}

// keepShort bounds what waits in QEMU's connections to what the longest of their ways needs.
func (m *outgoing) keepShort(to netip.AddrPort, look policy.Look) error {
	q, now := &m.work.own, time.Now()
	if look.Round <= 1 || look.Goodput == 0 || now.Sub(q.at) < keptAgain {
		return nil
	}
	q.at = now
	connections, err := mptcp.Connections()
	if err != nil {
		return err
	}
	rtt := m.work.rtt
	for _, c := range connections {
		for _, s := range c.Subflows {
			if c.Remote == to {
				rtt = max(rtt, s.LeastRTT)
			}
		}
	}
	want := max(leastKept, float64(look.Goodput)*(rtt+queueKept).Seconds())
	if change := want - q.kept; q.kept > 0 && change < q.kept*keptChange && -change < q.kept*keptChange {
		return nil
	}
	n, err := mptcp.LimitSend(m.guest.Machine.PID(), to, int(want))
	if err == nil && n == 0 {
		err = fmt.Errorf("QEMU has none to %s", to)
	}
	if err == nil {
		q.kept = want
	}
	return err
}
