package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
)

// A home that is asked to send a guest's addresses to another host believes no word of that host:
// it asks the one to which it sends them now, from where the guest went on. Where that does not
// answer they go on taking its way, for as long as their lease.

// peerLed says whether this host leads addresses on, by an error if not.
func (a *Agent) peerLed(r *http.Request) (any, error) {
	var ask talk.Led
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	if err := ask.Check(); err != nil {
		return nil, err
	}
	return nil, a.leadsOn(r.Context(), ask)
}

// leadsOn is nil where every address that is asked for is led to that host, from here or from
// where it is led to.
func (a *Agent) leadsOn(ctx context.Context, ask talk.Led) error {
	next := map[string][]netip.Addr{}
	for _, addr := range ask.Addresses {
		switch by := a.ledBy(ask.Guest, addr); by {
		case ask.To:
		case "":
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("guest %s: host %s does not lead %s to %.100q", ask.Guest, a.config.Host, addr, ask.To)}
		default:
			next[by] = append(next[by], addr)
		}
	}
	for host, addrs := range next {
		if ask.Hops == 0 {
			return talk.NotBelieved("guest %s: that %v are led to %.100q is not known over so many hosts", ask.Guest, addrs, ask.To)
		}
		link, _, err := a.link(host)
		if err != nil {
			return err
		}
		on, cancel := limits.AskLed.On(ctx)
		err = limits.Says(on, link.Call(on, http.MethodPost, "/v1/detours/led", talk.Led{Guest: ask.Guest, Addresses: addrs, To: ask.To, Hops: ask.Hops - 1}, nil))
		cancel()
		if err != nil {
			return fmt.Errorf("ask %s whether it leads %v on to %.100q: %w", host, addrs, ask.To, err)
		}
	}
	return nil
}

// ledBy is the host to which this one sends an address of a guest, by the newest detour; "": none.
func (a *Agent) ledBy(guest string, addr netip.Addr) string {
	var newest detour.Detour
	for _, d := range a.detours.List(guest) {
		has := slices.ContainsFunc(d.SendsAway(), func(s netstate.Away) bool { return s.Addr == addr })
		if has && (newest.ID == "" || d.Up.After(newest.Up)) {
			newest = d
		}
	}
	return newest.Peer
}
