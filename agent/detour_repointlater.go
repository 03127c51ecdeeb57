package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/migration"
)

// A home that did not answer as it was asked to send a guest's addresses here directly (repointHomes), as its agent was
// being started again or its uplink was cut, sends them over the host that the guest came from. That must stay for it,
// for good where the guest keeps the address, and so does what else the home sends there by the same tunnel and nobody
// needs. So such homes are asked again, more and more seldom, for as long as the addresses come here.

// roundabout is a home whose addresses come here by a detour from another host.
type roundabout struct{ home, by string }

// roundabouts are what the guest, which is here, has of such addresses.
func (a *Agent) roundabouts(g *guests.Guest) map[roundabout][]netip.Addr {
	out := map[roundabout][]netip.Addr{}
	for _, d := range a.detours.List(g.Name()) {
		for _, v := range d.Visiting {
			held := g.Held().Addresses
			at := slices.IndexFunc(held, func(addr migration.Address) bool { return addr.Prefix.Addr() == v.Addr })
			if !d.Leased || v.AtHome() || at < 0 || held[at].Home == d.Peer || held[at].Home == a.config.Host {
				continue
			}
			if _, known := a.config.Peer(held[at].Home); known {
				r := roundabout{held[at].Home, d.ID}
				out[r] = append(out[r], v.Addr)
			}
		}
	}
	return out
}

// retryHomes asks homes again, for the guests here.
func (a *Agent) retryHomes() {
	for _, g := range a.guests.All() {
		if now := time.Now(); g.Migration() == "" && g.Asks().MayAskHomes(now) && len(a.roundabouts(g)) > 0 {
			g.Asks().AskedHomes(now)
			a.actors.Go(func() { a.retryHome(a.ctx, g) })
		}
	}
}

// retryHome asks those that answer, one after the other: a migration that is asked for meanwhile waits for one at most,
// and for none that is off.
func (a *Agent) retryHome(ctx context.Context, g *guests.Guest) {
	for r := range a.roundabouts(g) {
		err := a.answers(ctx, r.home)
		switch {
		case err == nil:
			err = a.askDirectly(ctx, g, r)
		case a.inDoubt(detour.WayID(migrationOf(r.by), "", r.home)):
			g.Asks().HomesAreUnknown(time.Now())
		}
		if err != nil {
			a.rarely.warn(a.log, "a home was asked again to send directly", "guest", g.Name(), "home", r.home, "error", err)
		}
	}
}

// inDoubt says whether that way's far end may send by it already: it was asked to, not longer than a lease ago, and has
// not answered.
func (a *Agent) inDoubt(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, asked := a.asked[id]
	return asked && !a.outlived(w)
}

// askDirectly asks one home, unless the guest moves on.
func (a *Agent) askDirectly(ctx context.Context, g *guests.Guest, r roundabout) error {
	g.LockAddresses() // a migration that is asked for meanwhile goes with what came of it
	defer g.UnlockAddresses()
	addrs := a.roundabouts(g)[r]
	if g.Migration() != "" || len(addrs) == 0 {
		return nil
	}
	by, ok := a.detours.Get(r.by)
	w := way{guest: g, migration: migrationOf(r.by), kind: by.Tunnel.Kind, host: r.home, addrs: addrs, lease: by.Left(), forever: by.Until.IsZero()}
	if _, other := a.detours.Get(w.id()); !ok || other { // what came by that since is not led by it
		return nil
	}
	err := a.repointHome(ctx, w)
	if errors.Is(err, errUnanswered) && g.Migration() != "" { // which waits, and goes by what is known then: nobody asks any more
		err = a.repointHome(ctx, w)
	}
	if errors.Is(err, errUnanswered) {
		g.Asks().HomesAreUnknown(time.Now())
	}
	if err != nil {
		return err
	}
	a.log.Info("a home sends directly by now", "guest", g.Name(), "home", r.home, "addresses", addrs)
	text := fmt.Sprintf("%s sends %v directly by now, and %s is not needed for them any more", r.home, addrs, by.Peer)
	if !a.endEmptied(g.Name(), by.Peer, "", text) {
		a.noteLater(w.migration, text)
	}
	return nil
}

// endEmptied ends at both ends what led addresses of a guest here from a host, and leads nothing any more, but for a
// detour that its own migration is about to end: a moment later, as packets may be under way in it. That host is told
// on, and note is noted once it has heard; false: there is none for it to hear of.
func (a *Agent) endEmptied(guest, peer, but, note string) (tells bool) {
	for _, d := range a.detours.List(guest) {
		if d.Peer != peer || d.ID == but || len(d.Addresses()) > 0 {
			continue
		}
		if _, _, err := a.link(peer); err == nil {
			rep, _ := a.records.Report(migrationOf(d.ID))
			a.endLater(ending{d.ID, d.Peer, EndedDetour{Survival: rep.Survival}, note})
			tells = true
		}
		a.actors.Go(func() {
			if !sleep(a.ctx, underway) {
				return // it ends as the next agent looks after it
			}
			if err := a.endDetour(a.ctx, d); err != nil {
				a.log.Warn("end the way from a home", "detour", d.ID, "error", err)
			}
		})
	}
	return tells
}
