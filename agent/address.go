package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

// takenAddresses are those that guests here hold, have not given up, are coming with, or left
// for a tunnel. It is asked by the book, which is locked then: nobody asks that while he holds a lock that is taken here.
func (a *Agent) takenAddresses() map[netip.Addr]string {
	out := a.guests.Expected()
	for _, g := range a.guests.All() {
		for _, addr := range g.Held().Addresses {
			out[addr.Prefix.Addr()] = g.Name()
		}
		a.notGivenUp(g.Held(), out)
	}
	for _, d := range a.detours.List("") {
		for _, addr := range d.Addresses() {
			out[addr] = d.Guest
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range a.incoming {
		for _, addr := range in.plan.Next {
			out[addr.Prefix.Addr()] = in.plan.Guest
		}
	}
	return out
}

// lacksIPv6 says that the guest has turned IPv6 off: for all of its NICs, and it has no such
// address. One that comes from a site without IPv6 may have it off for the NIC in use.
func lacksIPv6(info guest.Info, nics []config.NIC, held []migration.Address) bool {
	off := 0
	for _, nic := range nics {
		if slices.ContainsFunc(info.NICs, func(n guest.NIC) bool { return n.NoIPv6 && !n.Above && strings.EqualFold(n.MAC, nic.MAC) }) {
			off++
		}
	}
	return off == len(nics) && !slices.ContainsFunc(held, func(addr migration.Address) bool { return addr.Prefix.Addr().Is6() })
}

// settleAnnounced refuses what announceable does, but where network auto has become drain already, as no connection could follow
// anyway: then nobody is told of the next addresses.
func (m *outgoing) settleAnnounced() error {
	refused := announceable(m.plan, m.work.capabilities)
	if refused == nil || m.plan.Network != "drain" {
		return refused
	}
	m.plan.Chosen, m.plan.Next = false, slices.Clone(m.plan.Next)
	for i := range m.plan.Next {
		m.plan.Next[i].Endpoint = 0
	}
	m.rec.Note("its next address is behind a NAT, and the program behind its channel cannot announce what clients see of it: what opens as MPTCP before the switch does not follow, after all, and stays on the tunnel")
	return nil
}

// announceable refuses next addresses behind a NAT of which the guest could only
// announce its own side: no client would come.
func announceable(plan migration.Plan, capabilities []string) error {
	for _, next := range plan.Next {
		if next.Public.IsValid() && next.Endpoint != 0 && !slices.Contains(capabilities, guest.CapAnnounce) {
			return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf(
				"migrate guest %s: its next address %s is behind a NAT, and the program behind its channel cannot announce %s instead; use --network drain or tunnel",
				plan.Guest, next.Prefix.Addr(), next.Public)}
		}
	}
	return nil
}

// nextEndpoint is the first id of a fresh pair of MPTCP endpoint ids, after id. They
// are one byte; after 240 they begin again, when the first are long forgotten.
func nextEndpoint(id uint8) uint8 {
	if id >= 240 {
		return 1
	}
	return id + 1 + id%2
}
