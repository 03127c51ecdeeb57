package agent

import (
	"maps"
	"sync/atomic"
	"time"

	"godwit/agent/record"
	"godwit/agent/uplinks"
)

// wireBytes is what was sent to the destination so far.
func (m *outgoing) wireBytes() *uplinks.Sent {
	n, _ := m.a.config.Peer(m.plan.To)
	var tunnels []uint16
	for _, t := range m.work.memoryTunnels {
		tunnels = append(tunnels, t.Remote.Port())
	}
	return m.a.meters.Sent(m.a.config.Paths(n), tunnels)
}

// beginWire counts from now on, if it does not yet: what is sent first, lanes, disks or memory,
// begins it. What the report has by then was sent in earlier tries, or by an earlier agent.
func (m *outgoing) beginWire() {
	if m.work.wire.Begun() {
		return
	}
	m.work.wire.Begin(m.rec.Snapshot().WireBytes, m.wireBytes(), m.a.shares.Join(m.plan.To))
	m.work.wireTold = wireTold{begun: time.Now()}
}

// followQEMU has what QEMU sends by its own connections counted among the migration's own bytes, where they are in no
// tunnels: meters do not tell them from what others send to that host.
func (m *outgoing) followQEMU() {
	if !m.plan.Insecure {
		return
	}
	m.work.qemuSent = new(atomic.Int64)
	m.work.wire.Follow(m.work.qemuSent.Load)
}

// wireSince is what the migration has sent, by path.
func (m *outgoing) wireSince() map[string]int64 {
	if !m.work.wire.Begun() { // an agent that was started again, and sent nothing yet
		return m.rec.Snapshot().WireBytes
	}
	return m.work.wire.Since(m.wireBytes)
}

// countWire notes what the migration sent.
func (m *outgoing) countWire() {
	if !m.work.wire.Begun() {
		return
	}
	wire := m.wireSince()
	uncounted := m.work.wire.Uncounted()
	m.rec.Edit(func(r *record.Report) {
		maps.Copy(uncounted, r.WireUncounted) // of earlier tries, too
		r.WireBytes, r.WireUncounted = wire, uncounted
	})
}

// wireTold is when what was sent was written down last, for an agent that is started again.
type wireTold struct{ begun, last time.Time }

// wireLost bounds what an agent that is killed takes with it of that count: what was sent in this time,
// or, of a long copy, in a share of it. The journal is to stay short.
const (
	wireLost      = time.Second
	wireLostShare = 20
	// wireRoom is what of the journal's room is left to the switch, bytes, whatever becomes of the disk meanwhile.
	wireRoom = 64 << 10
)

// due says whether it is to be written down again, at now.
func (w *wireTold) due(now time.Time) bool {
	if now.Sub(w.last) < max(wireLost, now.Sub(w.begun)/wireLostShare) {
		return false
	}
	w.last = now
	return true
}

// keepWire writes down from time to time, while a copy goes on, what it has sent, and at once that its limit
// was changed. It is called by what is being performed: nobody else writes to the journal meanwhile. Nothing hangs on it.
func (m *outgoing) keepWire() {
	if !m.work.wire.Begun() || m.log == nil || !m.work.wireTold.due(time.Now()) && m.bandwidth.Bits() == m.limited || m.log.Reserve(wireRoom) != nil {
		return
	}
	if m.state.LedAway() { // from the switch on the record has the whole report
		m.takeDown(m.state)
	} else {
		m.countWire()
		m.kept = m.sentSoFar()
	}
	if err := m.writeDown(m.state, m.kept, false); err != nil {
		m.a.log.Warn("write down what was sent", "migration", m.plan.ID, "error", err)
	}
}
