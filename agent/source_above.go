package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"godwit/agent/config"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/vm/guest"
)

// A guest may have its address on a bridge, a VLAN or a bond over its NIC. The next address would go to the other NIC,
// beside all that, and the old one would be looked for where it is not: such a guest keeps its address. So does one
// whose other NIC is a part of a bridge or a bond, as nobody would get to an address there, or is not in the guest at all.

// settleAbove has such a guest keep its address, where nobody has said otherwise.
func (m *outgoing) settleAbove(info guest.Info) error {
	device, addr := above(info, migration.Bare(m.plan.Held))
	spare, lacks, help := spareUnfit(info, m.guest.Held().Description, m.plan.Active)
	otherwise := m.plan.Network != "auto" || m.plan.Want.IsValid()
	switch {
	case device == "" && spare == "" || m.plan.KeepsAddress():
	case device == "" && otherwise:
		return m.problem(migration.CodeGuest, "network %s: its spare NIC %s %s; %s, or keep the address with --network tunnel", m.plan.Network, spare, lacks, help)
	case device == "":
		m.plan.Network = "tunnel"
		m.rec.Note(fmt.Sprintf("network auto: tunnel, since the guest's spare NIC %s %s: it keeps the address", spare, lacks))
	case otherwise:
		return m.problem(migration.CodeGuest, "network %s: its address %s is on %s, which lies over its NIC, and the next one would not get there; keep the address with --network tunnel, or put it on the NIC itself",
			m.plan.Network, addr, device)
	default:
		m.plan.Network = "tunnel"
		m.rec.Note(fmt.Sprintf("network auto: tunnel, since the guest's address %s is on %s, which lies over its NIC: it keeps the address", addr, device))
	}
	return nil
}

// above is the device over NICs that has one of the addresses; "": none has.
func above(info guest.Info, held []netip.Addr) (device string, addr netip.Addr) {
	for _, nic := range info.NICs {
		at := slices.IndexFunc(nic.Addrs, func(p netip.Prefix) bool { return nic.Above && slices.Contains(held, p.Addr()) })
		if at >= 0 {
			return oneline.Of(nic.Name), nic.Addrs[at].Addr()
		}
	}
	return "", netip.Addr{}
}

// spareUnfit is the spare NIC where no next address can be given to it, what it lacks, and what helps; "": it can, or
// there is none. A guest that does not name its other NIC either does not tell what it has.
func spareUnfit(info guest.Info, d config.Description, active int) (spare, lacks, help string) {
	if len(d.NICs) != 2 || active < 0 || active > 1 {
		return "", "", ""
	}
	is := func(nic config.NIC) func(guest.NIC) bool {
		return func(n guest.NIC) bool { return strings.EqualFold(n.MAC, nic.MAC) && !n.Above }
	}
	other := d.NICs[1-active]
	at := slices.IndexFunc(info.NICs, is(other))
	switch {
	case at < 0 && slices.ContainsFunc(info.NICs, is(d.NICs[active])):
		return other.MAC, "is not in the guest", "see what became of it there (a driver, a MAC of the guest's own, a container that took it)"
	case at >= 0 && info.NICs[at].Part:
		return oneline.Of(info.NICs[at].Name), "is a part of a bridge or bond, and nobody would get to a next address there", "take it out of that"
	}
	return "", "", ""
}
