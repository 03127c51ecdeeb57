package agent

import (
	"context"
	"time"

	"godwit/agent/uplinks"
	"godwit/vm"
)

// Where memory takes QEMU's own connection, and does not pass through us, it has a part of the migration's
// limit, and the disks have the rest, see uplinks.Part. QEMU is told of each change of its.

// qemuLimit is what QEMU is to send at most, bytes per second; 0: it has no limit.
func (m *outgoing) qemuLimit() int64 {
	most := m.bandwidth.Bytes()
	w := m.work.mirrors
	if most == 0 || !m.plan.Direct() || w == nil {
		return most
	}
	own := m.work.qemuPart.See(time.Now(), w.Carried(), most)
	m.bandwidth.KeepApart(own)
	return own
}

// beginQEMUPart is with what limit QEMU begins.
func (m *outgoing) beginQEMUPart() int64 {
	m.work.qemuPart = uplinks.Part{}
	m.work.qemuTold = m.qemuLimit()
	return m.work.qemuTold
}

// limitQEMU tells QEMU its limit, where it has one and that has changed. One that is held by low bandwidth
// keeps the first: another would end the hold.
func (m *outgoing) limitQEMU(ctx context.Context) error {
	if m.plan.OwnPath() || m.work.facts.Hold == vm.HoldLowBandwidth {
		return nil
	}
	limit := m.qemuLimit()
	if limit == m.work.qemuTold {
		return nil
	}
	if err := m.guest.Machine().SetBandwidth(ctx, limit); err != nil {
		return err
	}
	m.work.qemuTold = limit
	return nil
}
