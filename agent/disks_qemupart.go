package agent

import (
	"context"
	"time"

	"godwit/vm"
)

// Where memory takes QEMU's own connection, and does not pass through us, it has a part of the migration's
// limit, and the disks have the rest. Both are set by what the disks take: they have what they need, at most
// half while memory is copied, and memory has what they leave.

// qemuPart is how a limit is parted. Its zero value leaves the disks half.
type qemuPart struct {
	at      time.Time
	carried int64 // by the disks' streams until then, bytes
	disks   int64 // bytes per second for the disks
	told    int64 // QEMU: its limit, bytes per second; 0: none
}

const (
	partEvery = time.Second // parts are set anew
	leastDisk = 16          // what disks have at least is this part of the limit
)

// see takes what the disks' streams have carried, and returns what QEMU has of a limit, bytes per second.
func (q *qemuPart) see(now time.Time, carried, limit int64) int64 {
	half := limit / 2
	switch d := now.Sub(q.at); {
	case q.at.IsZero():
		q.at, q.carried, q.disks = now, carried, half
	case d >= partEvery:
		used := int64(float64(carried-q.carried) / d.Seconds())
		if used > q.disks*3/4 { // it may want more
			q.disks *= 2
		} else {
			q.disks = used * 3 / 2
		}
		q.at, q.carried = now, carried
	}
	q.disks = min(max(q.disks, limit/leastDisk), half)
	return max(1, limit-q.disks)
}

// qemuLimit is what QEMU is to send at most, bytes per second; 0: it has no limit.
func (m *outgoing) qemuLimit() int64 {
	most := m.bandwidth.Bytes()
	w := m.work.mirrors
	if most == 0 || !m.plan.Direct() || w == nil {
		return most
	}
	own := m.work.qemuPart.see(time.Now(), w.Carried(), most)
	m.bandwidth.KeepApart(own)
	return own
}

// beginQEMUPart is with what limit QEMU begins.
func (m *outgoing) beginQEMUPart() int64 {
	m.work.qemuPart = qemuPart{}
	m.work.qemuPart.told = m.qemuLimit()
	return m.work.qemuPart.told
}

// limitQEMU tells QEMU its limit, where it has one and that has changed. One that is held by low bandwidth
// keeps the first: another would end the hold.
func (m *outgoing) limitQEMU(ctx context.Context) error {
	if m.plan.OwnPath() || m.work.facts.Hold == vm.HoldLowBandwidth {
		return nil
	}
	limit := m.qemuLimit()
	if limit == m.work.qemuPart.told {
		return nil
	}
	if err := m.guest.Machine.SetBandwidth(ctx, limit); err != nil {
		return err
	}
	m.work.qemuPart.told = limit
	return nil
}
