package agent

import (
	"context"

	"godwit/netstate/hold"
)

// leadTo points the kernel's entries for visiting addresses at NIC number nic.
func (m *incoming) leadTo(nic int) error {
	g := m.work.guest
	return m.a.detours.change(m.plan.Guest, func(all map[string]*detour) {
		for _, d := range all {
			if d.Guest != m.plan.Guest {
				continue
			}
			for i := range d.Visiting {
				d.Visiting[i].MAC = g.Held.Description.NICs[nic].hardware()
				d.Visiting[i].Tap = g.Held.Taps[nic]
			}
		}
	})
}

// emptyTap waits, for a moment at most, until the guest has taken what was on its way
// to NIC number nic, which is about to go down.
func (m *incoming) emptyTap(ctx context.Context, nic int) {
	g := m.work.guest
	if nic >= len(g.Taps) || g.Taps[nic] == nil {
		return
	}
	if err := hold.Drained(ctx, g.Taps[nic], drainQuiet, drainLimit); err != nil {
		m.a.log.Info("tap not drained before its NIC goes down", "migration", m.plan.ID, "error", err)
	}
}
