package agent

import (
	"context"
	"fmt"

	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/hold"
)

// leadTo points the kernel's entries for visiting addresses at NIC number nic.
func (m *incoming) leadTo(nic int) error {
	g := m.work.guest
	return m.a.detours.ChangeNow(m.plan.Guest, func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest != m.plan.Guest {
				continue
			}
			for i := range d.Visiting {
				if v := &d.Visiting[i]; v.AtHome() && v.Tap != g.Held().Taps[nic] {
					v.Known = v.MAC
				}
				d.Visiting[i].MAC = g.Held().Description.NICs[nic].Hardware()
				d.Visiting[i].Tap = g.Held().Taps[nic]
			}
		}
	})
}

// tellSwitch shows the site's switch the guest's NIC at this host's port, where the guest
// comes from another host of the same site: until it spoke here, its frames would go there;
// and its neighbours, where a subnet agent of the site stood for its addresses.
// Who sends to another of its MACs needs no switch, see netstate.Visiting.Known.
func (a *Agent) tellSwitch(plan migration.Plan) {
	for _, d := range a.detours.List(plan.Guest) {
		if plan.FromSite != plan.ToSite && d.Lender == "" {
			continue
		}
		for _, v := range d.Visiting {
			if !v.AtHome() {
				continue
			}
			if err := netstate.Announce(a.config.Network.LAN, v.Addr, v.MAC); err != nil {
				a.log.Warn("tell the switch where the guest is", "migration", plan.ID, "address", v.Addr, "error", err)
			}
		}
	}
}

// emptyTap waits until the guest has taken what was on its way to its old NIC, which is
// about to go down. Nothing new comes there. What a busy guest leaves in the tap goes to its
// other NIC.
func (m *incoming) emptyTap(ctx context.Context) {
	g, nic := m.work.guest, m.plan.Active
	if nic >= len(g.Taps()) || g.Taps()[nic] == nil || len(m.plan.Held) == 0 {
		return
	}
	taken := func(ctx context.Context) error {
		return netstate.Taken(ctx, g.Held().Taps[nic], g.Held().Description.NICs[nic].Hardware(), m.plan.Held[0].Prefix.Addr())
	}
	if limits.OldSoon.Do(ctx, taken) == nil {
		return
	}
	if frames, err := hold.ReadLeft(g.Taps()[nic]); err != nil {
		m.a.log.Warn("read what is left in a tap", "migration", m.plan.ID, "error", err)
	} else if sent, err := hold.Readdress(frames, m.a.config.Network.Bridge, g.Held().Description.NICs[1-nic].Hardware()); err != nil {
		m.a.log.Warn("lead what was left in a tap to the other NIC", "migration", m.plan.ID, "sent", sent, "error", err)
	} else if sent > 0 {
		m.rec.Note(fmt.Sprintf("%d packets were left in the old NIC's tap and went to the other", sent))
	}
	if err := limits.OldNIC.Do(ctx, taken); err != nil {
		m.a.log.Info("what is in the old NIC's ring may be lost", "migration", m.plan.ID, "error", err)
	}
}
