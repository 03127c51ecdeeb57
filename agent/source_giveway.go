package agent

import (
	"fmt"

	"godwit/agent/priority"
	"godwit/migration"
	"godwit/transfer/proxy"
)

// claimWay claims the right of way while the guest stands still, or is about to, and until its last page has left
// where they follow it.
func (m *outgoing) claimWay(before, next migration.Source) {
	forward := next.Course == migration.Forward && !next.InDoubt
	switch {
	case forward && next.Phase() == migration.Switch:
		m.a.rightOfWay.Claim(m.plan.ID, true)
	case forward && next.Phase() == migration.Handover && m.work != nil && m.work.early:
		if before.Phase() == migration.Switch {
			m.wayUntilPages(m.work.lanes)
		}
	default:
		m.a.rightOfWay.Claim(m.plan.ID, false)
	}
}

// hurries says whether a migration in its switch goes before others of this host, and the host's other programs: not
// while its guest runs on, and is copied (copyOn).
func (m *outgoing) hurries(yes bool) {
	early, _ := m.rec.PagesFollow()
	m.a.precede(m.plan.ID, priority.AtSource(m.state, early, !yes))
	m.a.rightOfWay.Claim(m.plan.ID, yes)
}

// wayUntilPages has the right of way until these lanes have brought all pages.
func (m *outgoing) wayUntilPages(lanes *proxy.Source) {
	if lanes == nil {
		return
	}
	go func() { // lanes end with the migration, at the latest
		m.a.rightOfWay.HoldWhile(m.plan.ID, lanes.Done(), func() int64 { return lanes.Stats().Acked })
	}()
}

// giveWay goes on with so many bits per second at most, 0: as before, and says so.
func (m *outgoing) giveWay(bits int64) {
	if m.itself != "" { // QEMU sends by itself, as fast as it began
		return
	}
	gave, changed := m.bandwidth.GiveWay(bits)
	switch {
	case !changed:
	case bits > 0:
		m.rec.Note("gives way: the guest of another migration over the same uplinks stands still, or waits for its pages")
	default:
		m.rec.Note(fmt.Sprintf("goes on at full speed, after it gave way for %.1f s", gave.Seconds()))
	}
}
