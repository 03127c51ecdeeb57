package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/handed"
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

// settleAnnounced refuses what handed.Announceable does, but where network auto has become drain already, as no connection could follow
// anyway: then nobody is told of the next addresses.
func (m *outgoing) settleAnnounced() error {
	refused := handed.Announceable(m.plan, m.work.capabilities)
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

// noteUnseen says in the check which of the next addresses clients of the internet do not reach, though they reach the
// guest now: where a NAT leads there of which nobody knows, its inner side is what they, and the name server, are told.
func (m *outgoing) noteUnseen() {
	if m.plan.KeepsAddress() {
		return
	}
	for _, next := range handed.Unseen(m.plan) {
		key := "public4"
		if next.Prefix.Addr().Is6() {
			key = "public6"
		}
		m.rec.Note(fmt.Sprintf("its next address %s is a private one, unlike that which it leaves: clients of the internet do not reach it; where a 1:1 NAT leads there, name what they see (network.%s of %s), else use network tunnel for them", next.Seen(), key, m.plan.To))
	}
}
