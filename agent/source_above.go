package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/migration"
	"godwit/vm/guest"
)

// A guest may have its address on a bridge, a VLAN or a bond over its NIC. The next address would go to the other NIC,
// beside all that, and the old one would be looked for where it is not: such a guest keeps its address.

// settleAbove has such a guest keep its address, where nobody has said otherwise.
func (m *outgoing) settleAbove(info guest.Info, refuse func(migration.Code, string, ...any) error) error {
	device, addr := above(info, bare(m.plan.Held))
	switch {
	case device == "" || m.plan.KeepsAddress():
	case m.plan.Network != "auto":
		return refuse(migration.CodeGuest, "network %s: its address %s is on %s, which lies over its NIC, and the next one would not get there; keep the address with --network tunnel, or put it on the NIC itself",
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
			return nic.Name, nic.Addrs[at].Addr()
		}
	}
	return "", netip.Addr{}
}
