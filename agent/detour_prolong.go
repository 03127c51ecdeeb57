package agent

import (
	"fmt"
	"net/http"
	"time"

	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
)

// A lease does not run out while its guest moves on: the guest takes the address along, and until it has landed
// nobody can ask it to give that up. Its home would give the address to others meanwhile.

const (
	prolongBy    = time.Minute   // what is left of such a lease from then on
	prolongAhead = prolongBy / 2 // and what is left of it when that is asked for: an answer may be missed
	mostProlong  = 2 * prolongBy // that a host is believed to mean
)

// prolong keeps a leased detour of a guest that is leaving this host, at both ends.
func (a *Agent) prolong(d detour.Detour) error {
	if d.Until.IsZero() || d.AtHome() || clock.Until(d.Until) > prolongAhead {
		return nil
	}
	if link, _, err := a.link(d.Peer); err == nil {
		a.actors.Go(func() { // its answer holds up no lease of others
			ask, cancel := limits.EndDetour.On(a.ctx)
			defer cancel()
			if err := limits.Says(ask, link.Call(ask, http.MethodPost, "/v1/detours/"+d.ID+"/prolong", talk.Prolonged{Lease: prolongBy}, nil)); err != nil {
				a.log.Warn("prolong the detour's other end", "id", d.ID, "peer", d.Peer, "error", err)
			}
		})
	}
	return a.leaseOn(d, prolongBy)
}

// leaseOn has the lease of a detour last for as long from now on, if it would end before.
func (a *Agent) leaseOn(d detour.Detour, left time.Duration) error {
	return a.detours.Change(d.Guest, func(all map[string]*detour.Detour) {
		if d, ok := all[d.ID]; ok && d.Leased && !d.Until.IsZero() && clock.Until(d.Until) < left {
			d.LeaseFor(left)
		}
	})
}

// peerProlong keeps a leased detour for the host that its guest is leaving.
func (a *Agent) peerProlong(r *http.Request) (any, error) {
	var ask talk.Prolonged
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	d, ok := a.detours.Get(r.PathValue("id"))
	switch {
	case !ok:
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("prolong detour %.100q: there is none", r.PathValue("id"))}
	case peer.Caller(r) != d.Peer:
		return nil, talk.NotBelieved("prolong detour %s: it is with %s, not %s", d.ID, d.Peer, peer.Caller(r))
	case ask.Lease <= 0 || ask.Lease > mostProlong:
		return nil, talk.NotBelieved("prolong detour %s: by %v", d.ID, ask.Lease)
	}
	return nil, a.leaseOn(d, ask.Lease)
}
