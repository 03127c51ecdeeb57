package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/limits"
	"godwit/agent/otherway"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// The pair of uplinks that a leased tunnel takes may go down later on. The host that the guest came to asks for an echo
// through it now and then; where none comes, both ends are put at a pair that answers, the other host's first, by the
// name and keys that they had. There they stay until that pair does not answer. Kinds that never go in fragments, or of
// which there can be one alone, stay where they are: they need more of a path (detour.MayTake).

// lookAtWays looks after the pairs of uplinks that leased tunnels take, each beside everything else.
func (a *Agent) lookAtWays(ctx context.Context, l *looks) {
	for _, d := range a.detours.List("") {
		if pairs := a.otherPairs(d); pairs != nil && a.leadsWay(d) {
			l.begin("/way/"+d.ID, func() {
				if sleep(ctx, otherway.Look) {
					a.tunnelWay(d.ID, pairs).Keep(ctx)
				}
			})
		}
	}
}

// otherPairs are the pairs of uplinks that d's tunnel may take; nil where it takes the only one. Where it takes none of
// them, a host has other addresses now.
func (a *Agent) otherPairs(d detour.Detour) []peer.Path {
	n, _ := a.config.Peer(d.Peer)
	pairs := slices.DeleteFunc(a.config.GuestPaths(n), func(p peer.Path) bool { return !d.MayTake(p.Local) })
	if !slices.ContainsFunc(pairs, func(p peer.Path) bool { return p.Local != d.Tunnel.Local.Addr() || p.Remote != d.Tunnel.Remote.Addr() }) {
		return nil
	}
	return pairs
}

// leadsWay says whether it is for this host to lead d's tunnel over another pair of uplinks.
func (a *Agent) leadsWay(d detour.Detour) bool { return len(d.Visiting) > 0 && a.mayBeLed(d) }

// mayBeLed says whether d's tunnel may take another pair of uplinks: no migration has to do with it any more.
func (a *Agent) mayBeLed(d detour.Detour) bool {
	return d.Leased && d.MayTake(d.Tunnel.Local.Addr()) && !a.underWay(migrationOf(d.ID))
}

func (a *Agent) tunnelWay(id string, pairs []peer.Path) otherway.Way {
	return otherway.Way{
		Pairs: pairs,
		Takes: func() (local, remote netip.Addr, kept bool) {
			d, ok := a.detours.Get(id)
			return d.Tunnel.Local.Addr(), d.Tunnel.Remote.Addr(), ok && a.leadsWay(d)
		},
		Answers: func(ctx context.Context) otherway.Passage {
			d, _ := a.detours.Get(id)
			return otherway.Through(ctx, d.Tunnel)
		},
		Reaches: func(ctx context.Context, p peer.Path) (time.Duration, error) {
			d, _ := a.detours.Get(id)
			link, _, err := a.link(d.Peer)
			if err != nil {
				return 0, err
			}
			return tryWay(ctx, link, p)
		},
		Lead: func(ctx context.Context, p peer.Path) error {
			err := a.leadOver(ctx, id, p)
			if err != nil {
				a.rarely.warn(a.log, "lead a tunnel that does not answer over another pair of uplinks", "id", id, "over", p.Name, "error", err)
			}
			return err
		},
		Shrink: func(small bool) {
			if err := a.shrink(id, small); err != nil {
				a.rarely.warn(a.log, "tell connections that begin through a tunnel how large their packets may be", "id", id, "error", err)
			}
		},
	}
}

// shrink has connections that begin from now on agree on packets that any tunnel carries in one piece, or no more.
func (a *Agent) shrink(id string, small bool) error {
	d, ok := a.detours.Get(id)
	if !ok || d.Small == small {
		return nil
	}
	return a.detours.Change(d.Guest, func(all map[string]*detour.Detour) {
		if d := all[id]; d != nil {
			d.Small = small
		}
	})
}

// leadOver has both ends of a detour's tunnel take a pair of uplinks. On error this end is where it was, or will be
// where the store of detours says.
func (a *Agent) leadOver(ctx context.Context, id string, over peer.Path) (err error) {
	ctx, cancel := limits.Repoint.On(ctx)
	defer cancel()
	defer func() { err = limits.Says(ctx, err) }()
	d, ok := a.detours.Get(id)
	if !ok {
		return nil // it ended just now
	}
	end := d.Tunnel
	if end.Local.Addr() != over.Local || end.Remote.Addr() != over.Remote {
		if end, err = ends.New(a.config, id, end.Kind, over.Local, end.PrivateKey); err != nil {
			return err
		}
		end.PeerKey = d.Tunnel.PeerKey
	}
	link, _, err := a.link(d.Peer)
	if err != nil {
		return err
	}
	var there talk.Prepared
	if err := link.Call(ctx, http.MethodPost, "/v1/detours/"+id+"/over", talk.LeadOver{Tunnel: end.Local, TunnelTo: over.Remote}, &there); err != nil {
		return err
	}
	if there.Tunnel.Addr() != over.Remote || there.Tunnel.Port() == 0 {
		return talk.NotBelieved("lead detour %s over %s: the other end is at %s", id, over.Name, there.Tunnel)
	}
	end.Remote = there.Tunnel
	a.making.Lock()
	defer a.making.Unlock()
	if !a.has(d) {
		return nil
	}
	if err := ends.InnerFree(a.config, end); err != nil {
		return err
	}
	return a.placeEnd(ctx, d, end)
}

// placeEnd has d's tunnel stand with that end, and what is led into it; a.making is held. The end is noted before:
// a tunnel that stands elsewhere is put there by whoever asks again. It goes on when ctx ends, or the disk is full: half
// of it is worse than none.
func (a *Agent) placeEnd(ctx context.Context, d detour.Detour, end tunnel.Config) (err error) {
	ctx, cancel := limits.Repoint.On(context.WithoutCancel(ctx))
	defer cancel()
	defer func() { err = limits.Says(ctx, err) }()
	from := d.Tunnel
	err = a.detours.ChangeNow(d.Guest, func(all map[string]*detour.Detour) {
		if now, ok := all[d.ID]; ok {
			now.Tunnel = end
		}
	})
	if err != nil {
		return err
	}
	if t, err := tunnel.Attach(ctx, end.Dir, end.Name); err == nil && t.Local == end.Local && t.Remote == end.Remote {
		return nil
	}
	if err := detour.DropTunnel(ctx, ends.Dir(a.config), end.Name); err != nil {
		return err
	}
	if d.Tunnel = end; !a.has(d) {
		return nil
	}
	a.log.Warn("a tunnel is led over another pair of uplinks, as it did not answer", "id", d.ID, "guest", d.Guest, "to", d.Peer,
		"from", fmt.Sprintf("%s-%s", from.Local, from.Remote), "over", fmt.Sprintf("%s-%s", end.Local, end.Remote))
	return a.raise(ctx, d, func(*detour.Detour) {})
}

// peerLeadOver has this end of a leased tunnel go on by the pair of uplinks that its guest's host asks for. Asked
// twice, it is done once.
func (a *Agent) peerLeadOver(r *http.Request) (any, error) {
	var ask talk.LeadOver
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	id, caller := r.PathValue("id"), peer.Caller(r)
	a.making.Lock()
	defer a.making.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err // who gave up while others were led asks anew, with another end
	}
	d, ok := a.detours.Get(id)
	switch {
	case !ok:
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("lead detour %.100q over another pair of uplinks: there is none", id)}
	case caller != d.Peer:
		return nil, talk.NotBelieved("lead detour %s over another pair of uplinks: it is with %s, not %s", id, d.Peer, caller)
	case !a.mayBeLed(d) || !d.MayTake(ask.TunnelTo):
		return nil, &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("lead detour %s over another pair of uplinks: its migration is under way, or tunnels of its kind do not go there", id)}
	}
	if err := talk.UplinkOf(a.config, caller, ask.Tunnel.Addr(), "lead detour "+id+" over another pair of uplinks"); err != nil {
		return nil, err
	}
	n, _ := a.config.Peer(caller)
	pair := func(p peer.Path) bool { return p.Local == ask.TunnelTo && p.Remote == ask.Tunnel.Addr() }
	if !slices.ContainsFunc(a.config.GuestPaths(n), pair) || ask.Tunnel.Port() == 0 {
		return nil, talk.NotBelieved("lead detour %s over another pair of uplinks: %s to %s is none that carries guests", id, ask.TunnelTo, ask.Tunnel)
	}
	end := d.Tunnel
	if end.Local.Addr() != ask.TunnelTo || end.Remote != ask.Tunnel {
		var err error
		if end, err = ends.Answering(a.config, id, end.Kind, ask.TunnelTo, ask.Tunnel, end.PrivateKey, nil); err != nil {
			return nil, err
		}
		end.PeerKey = d.Tunnel.PeerKey
	}
	return talk.Prepared{Tunnel: end.Local}, a.placeEnd(r.Context(), d, end)
}
