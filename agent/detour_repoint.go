package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/agent/ways"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// After a handover on a third site the destination has the homes of the guest's old addresses
// send them there directly, past the host that the guest came from.

// repointHomes asks the home of every address that the guest keeps and that came over the source from
// elsewhere to send it here directly. A home that does not answer keeps sending
// over the source, whose lease then goes on, and is asked again later on (retryHomes). The error is errUnanswered,
// where it is not known what one does.
func (a *Agent) repointHomes(ctx context.Context, m *incoming) error {
	byHome, keeps := map[string][]netip.Addr{}, a.keeps(m.plan.Guest)
	for _, addr := range m.plan.Held {
		by, visits := a.detours.ComesFrom(m.plan.Guest, addr.Prefix.Addr())
		if addr.Home != m.plan.From && addr.Home != a.config.Host && visits && by != "" && keeps(addr.Prefix.Addr()) {
			byHome[addr.Home] = append(byHome[addr.Home], addr.Prefix.Addr())
		}
	}
	for home, addrs := range byHome {
		w := way{guest: m.work.guest, migration: m.plan.ID, kind: m.plan.Tunnel, host: home, addrs: addrs, lease: a.config.LeaseTime(), forever: m.leaseOf(addrs) == 0}
		switch err := a.repointHome(ctx, w); {
		case errors.Is(err, errUnanswered):
			m.rec.NoteOnce(home + " is asked on to send directly: whether it does is not known")
			return err
		case err != nil:
			m.work.guest.Asks().AskedHomes(time.Now()) // and again later on (retryHomes)
			m.rec.NoteOnce(fmt.Sprintf("%s goes on sending over %s: %v", home, m.plan.From, err))
		}
	}
	return nil
}

// A way is what leads addresses of a guest that is here from another host of their subnet.
type way struct {
	guest     *guests.Guest
	migration string // whose id the detour gets
	kind      string // of tunnel
	host      string // that is to send them here
	home      string // who hands them over to that host first; "": it is their home itself
	addrs     []netip.Addr
	lease     time.Duration
	forever   bool
}

// id is that of the way's detour.
func (w way) id() string { return detour.WayID(w.migration, w.home, w.host) }

// askedWay is a way whose far end was asked to go, by a tunnel that stands at both ends.
type askedWay struct {
	config tunnel.Config
	ask    talk.Repoint
	since  time.Time // when that was asked first
}

// errUnanswered says that a far end was asked to go, and may have: it is to be asked again.
var errUnanswered = errors.New("it is not known whether it sends here now")

// repointHome has w.host send addresses here. It may be repeated; after errUnanswered it must be,
// by whoever wants to know: both ends of the tunnel stay for that.
func (a *Agent) repointHome(ctx context.Context, w way) (err error) {
	ctx, cancel := limits.Repoint.On(ctx)
	defer cancel()
	defer func() { err = limits.Says(ctx, err) }()
	id := w.id()
	if d, ok := a.detours.Get(id); ok && !slices.ContainsFunc(w.addrs, func(addr netip.Addr) bool { return !slices.Contains(d.Addresses(), addr) }) {
		return nil // done, by an agent that ended before it had written down the rest
	}
	link, n, err := a.link(w.host)
	if err != nil {
		return err
	}
	a.mu.Lock()
	asked, again := a.asked[id]
	a.mu.Unlock()
	if !again || !slices.Equal(asked.ask.Addresses, w.addrs) {
		if asked, err = a.makeWay(ctx, w, id, link, n); err != nil {
			return err
		}
	}
	if err := a.askToGo(ctx, link, asked); err != nil {
		return err
	}
	return a.takeWay(&detour.Detour{ID: id, Guest: w.guest.Name(), Peer: w.host, Tunnel: asked.config, Up: clock.Now(), Taps: w.guest.Held().Taps}, w.addrs)
}

// askToGo has the far end of a tunnel send addresses into it. Where it says that it does not, the
// tunnel goes; where it says nothing, it is errUnanswered for as long as the way's lease.
func (a *Agent) askToGo(ctx context.Context, link *peer.Link, w askedWay) error {
	id := w.ask.Migration
	err := link.Call(ctx, http.MethodPost, "/v1/detours/repoint", w.ask, &talk.Prepared{})
	var problem *migration.Problem
	known := err == nil || errors.As(err, &problem) && problem.Code != migration.CodeInternal || a.outlived(w)
	a.mu.Lock()
	if delete(a.asked, id); !known {
		if a.asked == nil {
			a.asked = map[string]askedWay{}
		}
		a.asked[id] = w
	}
	a.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case !known:
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return errors.Join(err, detour.DropTunnel(context.WithoutCancel(ctx), ends.Dir(a.config), w.config.Name))
}

// outlived says whether that is so long ago that the far end has ended it by itself, if it went.
func (a *Agent) outlived(w askedWay) bool {
	return time.Since(w.since) > cmp.Or(w.ask.Lease, a.config.LeaseTime())
}

// makeWay makes both ends of a tunnel from w.host, and tries it.
func (a *Agent) makeWay(ctx context.Context, w way, id string, link *peer.Link, n config.Neighbour) (askedWay, error) {
	none := askedWay{}
	if err := a.ownName(id); err != nil {
		return none, err
	}
	over, err := a.wayOver(ctx, link, n, w)
	if err != nil {
		return none, err
	}
	private, public, err := tunnel.NewKey()
	if err != nil {
		return none, err
	}
	end, err := ends.New(a.config, id, w.kind, over.Local, private)
	if err != nil {
		return none, err
	}
	var answer talk.Prepared
	ask := talk.Repoint{
		Migration: id, Guest: w.guest.Name(), Addresses: w.addrs, Home: w.home, TunnelKey: public, Tunnel: end.Local, TunnelTo: over.Remote,
		Kind: w.kind, Lease: w.lease, Forever: w.forever,
	}
	if err := link.Call(ctx, http.MethodPost, "/v1/detours/repoint", ask, &answer); err != nil {
		return none, err
	}
	if err := talk.UplinkOf(a.config, w.host, answer.Tunnel.Addr(), "repoint guest "+ask.Guest); err != nil {
		return none, err
	}
	if end.PeerKey, err = tunnel.ParseKey(answer.TunnelKey); err != nil {
		return none, err
	}
	end.Remote = answer.Tunnel
	if _, ok := a.detours.Get(id); !ok { // of an earlier try, which an agent's end cut off
		if err := detour.DropTunnel(ctx, ends.Dir(a.config), end.Name); err != nil {
			return none, err
		}
	}
	t, err := ends.Up(ctx, end)
	if err != nil {
		return none, err
	}
	if err = t.Verify(ctx); err != nil {
		return none, errors.Join(err, detour.DropTunnel(context.WithoutCancel(ctx), ends.Dir(a.config), end.Name))
	}
	ask.Go = true
	return askedWay{end, ask, time.Now()}, nil
}

// wayOver is the pair of uplinks over which a tunnel to a host is made: the first that carry guests, and all that is
// led, by which it answers.
func (a *Agent) wayOver(ctx context.Context, link *peer.Link, n config.Neighbour, w way) (peer.Path, error) {
	pairs := slices.DeleteFunc(a.config.GuestPaths(n), func(p peer.Path) bool { return !w.goesOver(p.Local) })
	switch len(pairs) {
	case 0:
		return peer.Path{}, fmt.Errorf("no uplink carries guests' traffic to %v by tunnel %s", w.addrs, w.kind)
	case 1:
		return pairs[0], nil
	}
	k, _, _ := ways.FirstThatAnswers(ctx, pairs, func(ctx context.Context, p peer.Path) (time.Duration, error) { return tryWay(ctx, link, p) })
	return pairs[max(k, 0)], nil
}

// tryWay says, by its error, whether a host answers by a pair of uplinks.
func tryWay(ctx context.Context, link *peer.Link, p peer.Path) (time.Duration, error) {
	ctx, end := limits.TryWay.On(ctx)
	defer end()
	return 0, link.Reaches(ctx, p)
}

// takeWay has d be the way of addresses from now on, in place of the detours that were.
func (a *Agent) takeWay(d *detour.Detour, addrs []netip.Addr) error {
	return a.detours.Change(d.Guest, func(all map[string]*detour.Detour) { d.Take(all, addrs) })
}
