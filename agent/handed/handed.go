// Package handed has what a handover gives a guest, in the words of its channel, and holds what a guest has against that:
// addresses with their routers, routing tables and MPTCP endpoints. It is pure: it owns nothing, and asks nobody.
//
// It keeps this: numbers that are a guest's own affair, its tables and endpoints, are not taken from it, and peers hear
// of none anew while they may remember it.
package handed

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

// Configure tells the guest to use addresses on its NIC number nic, at a host with that network.
func Configure(h care.Held, network config.Network, nic int, addrs []migration.Address, table int, main bool) guest.Configure {
	c := guest.Configure{MAC: h.Description.NICs[nic].MAC, Table: table, Main: main, TxQueueLen: 10000, MTU: network.MTU}
	if table == 0 {
		c.Table = h.Table
	}
	for _, addr := range addrs {
		c.Addrs = append(c.Addrs, addr.Prefix)
		if addr.Public.IsValid() {
			c.Announce = append(c.Announce, addr.Public)
		}
		if addr.Prefix.Addr().Is4() {
			c.GatewayV4 = addr.Gateway
		} else {
			c.GatewayV6 = addr.Gateway
		}
		if id := addr.Endpoint; id != 0 { // the pair's first names both
			c.Endpoint = id - (id+1)%2
		}
	}
	return c
}

// NotCurrent are addresses that a guest keeps beside those of a new handover.
func NotCurrent(held []migration.Address) []migration.Address {
	held = slices.Clone(held)
	for i := range held {
		held[i].Handover = ""
	}
	return held
}

// Announceable refuses next addresses behind a NAT of which the guest could only
// announce its own side: no client would come.
func Announceable(plan migration.Plan, capabilities []string) error {
	for _, next := range plan.Next {
		if next.Public.IsValid() && next.Endpoint != 0 && !slices.Contains(capabilities, guest.CapAnnounce) {
			return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf(
				"migrate guest %s: its next address %s is behind a NAT, and the program behind its channel cannot announce %s instead; use --network drain or tunnel",
				plan.Guest, next.Prefix.Addr(), next.Public)}
		}
	}
	return nil
}

// Unseen are next addresses that the internet does not lead to, of a guest that leaves one of that family to which it
// does. They may be behind a NAT that nobody has told of.
func Unseen(plan migration.Plan) (out []migration.Address) {
	for _, next := range plan.Next {
		addr := next.Seen()
		left := func(held migration.Address) bool { return held.Seen().Is4() == addr.Is4() && public(held.Seen()) }
		kept := slices.ContainsFunc(plan.Held, func(held migration.Address) bool { return held.Prefix.Addr() == next.Prefix.Addr() })
		if !public(addr) && !kept && slices.ContainsFunc(plan.Held, left) {
			out = append(out, next)
		}
	}
	return out
}

// shared is the space of carriers' own NATs (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// public says whether the internet may lead to addr: it is not of a network's own (RFC 1918, RFC 4193).
func public(addr netip.Addr) bool {
	return addr.IsGlobalUnicast() && !addr.IsPrivate() && !shared.Contains(addr)
}

// NextTable follows the highest table that a guest used, by turns.
func NextTable(highest int) int {
	if highest < guest.FirstTable || highest >= guest.FirstTable+guest.Tables-1 {
		return guest.FirstTable + 1
	}
	return highest + 1
}

// NextEndpoint is the first id of a fresh pair of MPTCP endpoint ids, after id. They
// are one byte; after 240 they begin again, when the first are long forgotten.
func NextEndpoint(id uint8) uint8 {
	if id >= 240 {
		return 1
	}
	return id + 1 + id%2
}
