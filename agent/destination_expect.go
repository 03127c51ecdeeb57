package agent

import (
	"net/http"
	"slices"

	"godwit/agent/talk"
	"godwit/migration"
)

// peerExpect has the guest's LAN here know where its next addresses will be: clients come as soon as the guest has told
// them of those, which it does before it arrives (agent/source_tell.go). Nothing is undone of that where it does not
// arrive: neighbours forget what they do not hear again.
func (a *Agent) peerExpect(r *http.Request) (any, error) {
	m, err := a.findTry(r)
	if err != nil {
		return nil, err
	}
	return talk.ExpectAnswer{Free: m.expect()}, nil
}

// expect does so, and says whether the addresses are free still, as far as was seen.
func (m *incoming) expect() bool {
	if m.snapshot().Refused() || !m.work.guard.Load().Free() || m.holdsOfHere() {
		return false
	}
	m.a.mu.Lock() // see changeNext
	next := m.plan.Next
	m.a.mu.Unlock()
	m.expects.Store(true)
	m.a.introduce(next, m.work.guest.Held().Description.NICs[1-m.plan.Active].Hardware())
	return true
}

// holdsOfHere says whether the guest keeps an address of the LAN here that another host here leads after it, as of one
// that comes back to another host of its site. Who is here may reach that by the MAC of the NIC that gets the next
// address, which would be known to be here.
func (m *incoming) holdsOfHere() bool {
	return slices.ContainsFunc(m.plan.Held, func(h migration.Address) bool {
		led := h.Home != m.a.config.Host || slices.Contains(m.work.prepared.Home, h.Prefix.Addr())
		return led && m.a.config.Network.OnLink(h.Prefix).IsValid()
	})
}
