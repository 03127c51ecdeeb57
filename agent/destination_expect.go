package agent

import (
	"net/http"
	"slices"

	"godwit/agent/talk"
	"godwit/migration"
)

// peerExpect has the guest's LAN here know where its next addresses will be: clients come as soon as the guest has told them of
// those, which it does before it arrives (agent/source_tell.go). Nothing is undone of that where it does not arrive: neighbours
// forget what they do not hear again.
func (a *Agent) peerExpect(r *http.Request) (any, error) {
	m, err := a.findTry(r)
	if err != nil {
		return nil, err
	}
	return talk.ExpectAnswer{Free: m.expect()}, nil
}

// expect does so, and says whether the addresses are free still, as far as was seen.
func (m *incoming) expect() bool {
	if m.snapshot().Refused() || !m.work.guard.Load().Free() {
		return false
	}
	m.a.mu.Lock() // see changeNext
	next := slices.Clone(m.plan.Next)
	m.a.mu.Unlock()
	first := slices.DeleteFunc(next, func(next migration.Address) bool { return !next.Prefix.Addr().Is4() }) // of which it tells
	m.expects.Store(true)
	m.a.introduce(first, m.work.guest.Held().Description.NICs[1-m.plan.Active].Hardware())
	return true
}
