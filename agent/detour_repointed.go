package agent

// At the home of addresses that are to be sent to another host directly, as repointHomes asks.

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// peerRepoint sends addresses of a guest whose home is here to the caller: asked first,
// it makes its end of a tunnel; asked to go, it sends them there. One that nobody asks to
// go ends soon.
func (a *Agent) peerRepoint(r *http.Request) (any, error) {
	var ask talk.Repoint
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	caller := peer.Caller(r)
	if err := ask.Check(a.config.Host); err != nil {
		return nil, err
	}
	if _, known := a.config.Peer(ask.Home); ask.Home != "" && !known {
		return nil, talk.NotBelieved("repoint guest %s: the home %.100q is no host that %s knows", ask.Guest, ask.Home, a.config.Host)
	}
	if err := talk.UplinkOf(a.config, caller, ask.Tunnel.Addr(), "repoint guest "+ask.Guest); err != nil {
		return nil, err
	}
	if d, ok := a.detours.Get(ask.Migration); ok && (d.Guest != ask.Guest || d.Peer != caller) {
		return nil, talk.NotBelieved("repoint guest %s: detour %s is of guest %s, with %s", ask.Guest, d.ID, d.Guest, d.Peer)
	}
	if ask.Go {
		return talk.Prepared{}, a.sendDirectly(ask, caller)
	}
	standing, err := a.leads(r.Context(), ask, caller)
	if err != nil {
		return nil, err
	}
	a.making.Lock() // or what is dropped here is taken for lost, and made to stand again
	defer a.making.Unlock()
	if d, ok := a.detours.Get(ask.Migration); ok && d.Tunnel.PeerKey.String() == ask.TunnelKey && slices.Equal(d.Asked, ask.Addresses) { // asked again
		return talk.Prepared{TunnelKey: d.Tunnel.PrivateKey.PublicKey().String(), Tunnel: d.Tunnel.Local}, nil
	}
	end, err := a.ownEnd(r.Context(), ask, caller)
	if err != nil {
		return nil, err
	}
	err = a.detours.Change(ask.Guest, func(all map[string]*detour.Detour) {
		d := &detour.Detour{ID: ask.Migration, Guest: ask.Guest, Peer: caller, Tunnel: end, Up: clock.Now(), Standing: standing, Asked: ask.Addresses}
		d.Replace(all[ask.Migration])
		all[ask.Migration] = d
	})
	return talk.Prepared{TunnelKey: end.PrivateKey.PublicKey().String(), Tunnel: end.Local}, err
}

// ownEnd makes this end of the tunnel that a caller asks for, in the place of one that it asked for before, which an agent's
// end there, or here, has cut off.
func (a *Agent) ownEnd(ctx context.Context, ask talk.Repoint, caller string) (tunnel.Config, error) {
	if err := a.ownName(ask.Migration); err != nil {
		return tunnel.Config{}, err
	}
	_, n, err := a.link(caller)
	if err != nil {
		return tunnel.Config{}, err
	}
	local, err := ends.At(a.config, n, ask.TunnelTo)
	if err != nil {
		return tunnel.Config{}, err
	}
	private, _, err := tunnel.NewKey()
	if err != nil {
		return tunnel.Config{}, err
	}
	end, err := ends.Answering(a.config, ask.Migration, ask.Kind, local, ask.Tunnel, private, nil)
	if err != nil {
		return tunnel.Config{}, err
	}
	if end.PeerKey, err = tunnel.ParseKey(ask.TunnelKey); err != nil {
		return tunnel.Config{}, &migration.Problem{Code: migration.CodeUsage, Text: "repoint: the tunnel's key is not one"}
	}
	if err := detour.DropTunnel(ctx, ends.Dir(a.config), end.Name); err != nil {
		return tunnel.Config{}, err
	}
	_, err = ends.Up(ctx, end)
	return end, err
}

// sendDirectly sends addresses into the tunnel that was made for them. Done twice, it is
// done once.
func (a *Agent) sendDirectly(ask talk.Repoint, caller string) error {
	noWay := &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("repoint guest %s: host %s has no tunnel to %s for that", ask.Guest, a.config.Host, caller)}
	d, ok := a.detours.Get(ask.Migration)
	if !ok || d.Guest != ask.Guest || d.Peer != caller {
		return noWay
	}
	known := append(d.Addresses(), a.awayOf(ask.Guest, d.Asked)...)
	if slices.ContainsFunc(ask.Addresses, func(addr netip.Addr) bool { return !slices.Contains(known, addr) }) {
		return talk.NotBelieved("repoint guest %s: %v is not what was asked for before", ask.Guest, ask.Addresses)
	}
	again := !slices.ContainsFunc(ask.Addresses, func(addr netip.Addr) bool { return !slices.Contains(d.LedAway(), addr) }) // and an agent may have been killed before it told neighbours
	var stood []netip.Addr
	beside := false // some went by a host of this site: neighbours may know a NIC of the guest's there
	err := a.detours.Change(ask.Guest, func(all map[string]*detour.Detour) {
		d := all[ask.Migration]
		if ok = d != nil; !ok { // it ended just now
			return
		}
		stood = d.Stand(all)
		if d.LeaseFor(ask.Lease); ask.Forever {
			d.Until = time.Time{}
		}
		for _, other := range all {
			if other.Guest != ask.Guest || other == d {
				continue
			}
			other.Away = slices.DeleteFunc(other.Away, func(away netstate.Away) bool {
				if !slices.Contains(ask.Addresses, away.Addr) {
					return false
				}
				n, _ := a.config.Peer(other.Peer)
				beside = beside || n.Site == a.config.Site
				away.Tunnel = d.Tunnel.Name
				d.Away = append(d.Away, away)
				return true
			})
			if len(other.Away)+len(other.Visiting) == 0 {
				other.Leased, other.Up, other.Standing = true, clock.Now(), nil // ended soon, when nothing is on its way through it
			}
		}
	})
	if err == nil && !ok {
		return noWay
	}
	if err == nil && len(stood) > 0 {
		a.log.Info("stands for addresses", "guest", ask.Guest, "addresses", stood, "of", ask.Home, "at", caller)
	}
	if err == nil && (beside || again || len(stood) > 0) {
		a.announce(ask.Migration)
	}
	return err
}

// awayOf are those of addrs that this host sends away for guest, or did until it was asked anew.
func (a *Agent) awayOf(guest string, addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, d := range a.detours.List(guest) {
		for _, away := range d.SendsAway() {
			if slices.Contains(addrs, away.Addr) {
				out = append(out, away.Addr)
			}
		}
	}
	return out
}
