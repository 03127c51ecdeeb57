package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"godwit/agent/limits"
	"godwit/migration"
	"godwit/vm/guest"
)

// listenersNamed is how many of those are named that listen on an address which the guest leaves.
const listenersNamed = 3

// noteListeners says in the check which of the guest's programs listen on an address alone that it leaves: connections
// that are open follow, and new clients come to the next address, where nobody listens.
func (m *outgoing) noteListeners(ctx context.Context) {
	next := migration.Bare(m.plan.Next)
	left := slices.DeleteFunc(migration.Bare(m.plan.Held), func(a netip.Addr) bool { return slices.Contains(next, a) })
	if m.plan.KeepsAddress() || len(left) == 0 || !slices.Contains(m.work.capabilities, guest.CapListeners) {
		return
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	alone, err := m.guest.Channel().Listeners(ctx, left...)
	if err != nil || len(alone.List) == 0 {
		return
	}
	var named []string
	for _, l := range alone.List[:min(listenersNamed, len(alone.List))] {
		named = append(named, fmt.Sprintf("%s (%s)", l.Local, l.Kind))
	}
	which := strings.Join(named, ", ")
	if more := len(alone.List) - len(named) + max(alone.Omitted, 0); more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	m.rec.Note(fmt.Sprintf("programs of the guest listen on %s, and not on all addresses: new clients do not reach them at its next address, unless they listen there by themselves; have them listen on all, or use network tunnel", which))
}
