package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
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

// Repoint asks an address's home to send it to another host.
type Repoint struct {
	Migration string         `json:"migration"`
	Guest     string         `json:"guest"`
	Addresses []netip.Addr   `json:"addresses"`
	Home      string         `json:"home,omitempty"` // of addresses that the host does not send away yet: who hands them over to it, as its subnet agent
	TunnelKey string         `json:"tunnel_key"`
	Tunnel    netip.AddrPort `json:"tunnel"`
	TunnelTo  netip.Addr     `json:"tunnel_to,omitzero"` // at which uplink its other end is to be; invalid: at the first that carries guests
	Kind      string         `json:"kind"`
	Lease     time.Duration  `json:"lease"`             // hosts' clocks differ: what is left, not until when
	Forever   bool           `json:"forever,omitempty"` // no end
	// Go: the tunnel's other end stands, too, and was tried. Only then the addresses are
	// sent there: what comes before would fill the tunnel's own queue and be lost.
	Go bool `json:"go,omitempty"`
}

// check says what of a request to repoint cannot be meant at this host.
func (r Repoint) check(here string) error {
	wrong := func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "repoint: " + fmt.Sprintf(format, args...)}
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(r.Migration, "m-"), "-")
	switch {
	case !migration.ValidID("m-"+id) || r.Migration != (way{migration: "m-" + id, host: here, home: r.Home}).id():
		return wrong("detour %.100q is not one to host %s", r.Migration, here)
	case !config.IsGuestName(r.Guest):
		return wrong("guest %.100q: not a name", r.Guest)
	case len(r.Addresses) == 0 || len(r.Addresses) > migration.MostAddresses:
		return wrong("%d addresses", len(r.Addresses))
	case r.Lease < 0 || r.Lease > config.MostLease:
		return wrong("a lease of %v", r.Lease)
	case !slices.Contains(migration.Tunnels, r.Kind) && r.Kind != "":
		return wrong("tunnel %.40q is unknown", r.Kind)
	case !r.Tunnel.IsValid() || r.Tunnel.Port() == 0:
		return wrong("the tunnel's end is no address")
	}
	if _, err := tunnel.ParseKey(r.TunnelKey); err != nil {
		return wrong("the tunnel's key is not one")
	}
	for i, addr := range r.Addresses {
		if !addr.IsValid() || slices.Contains(r.Addresses[:i], addr) {
			return wrong("address %s is none, or is named twice", addr)
		}
	}
	return nil
}

// repointHomes asks the home of every address that the guest keeps and that came over the source from
// elsewhere to send it here directly. A home that does not answer keeps sending
// over the source, whose lease then goes on. The error is errUnanswered, where it is not known
// what one does.
func (a *Agent) repointHomes(ctx context.Context, m *incoming) error {
	byHome, keeps := map[string][]netip.Addr{}, a.keeps(m.plan.Guest)
	for _, addr := range m.plan.Held {
		by, visits := a.detours.ComesFrom(m.plan.Guest, addr.Prefix.Addr())
		if addr.Home != m.plan.From && addr.Home != a.config.Host && visits && by != "" && keeps(addr.Prefix.Addr()) {
			byHome[addr.Home] = append(byHome[addr.Home], addr.Prefix.Addr())
		}
	}
	for home, addrs := range byHome {
		w := way{guest: m.work.guest, migration: m.plan.ID, kind: m.plan.Tunnel, host: home, addrs: addrs, lease: a.config.LeaseTime(), forever: m.plan.KeepsAddress()}
		switch err := a.repointHome(ctx, w); {
		case errors.Is(err, errUnanswered):
			m.rec.NoteOnce(home + " is asked on to send directly: whether it does is not known")
			return err
		case err != nil:
			m.rec.NoteOnce(fmt.Sprintf("%s goes on sending over %s: %v", home, m.plan.From, err))
		}
	}
	return nil
}

// A way is what leads addresses of a guest that is here from another host of their subnet.
type way struct {
	guest     *Guest
	migration string // whose id the detour gets
	kind      string // of tunnel
	host      string // that is to send them here
	home      string // who hands them over to that host first; "": it is their home itself
	addrs     []netip.Addr
	lease     time.Duration
	forever   bool
}

// id is that of the way's detour. A host may send addresses of its own, and stand for those of others: each is another way.
func (w way) id() string {
	if w.home != "" {
		return w.migration + "-" + w.home + "-" + w.host
	}
	return w.migration + "-" + w.host
}

// askedWay is a way whose far end was asked to go, by a tunnel that stands at both ends.
type askedWay struct {
	config tunnel.Config
	ask    Repoint
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
	return a.takeWay(&detour.Detour{ID: id, Guest: w.guest.name(), Peer: w.host, Tunnel: asked.config, Up: clock.Now(), Taps: w.guest.held().Taps}, w.addrs)
}

// askToGo has the far end of a tunnel send addresses into it. Where it says that it does not, the
// tunnel goes; where it says nothing, it is errUnanswered for as long as the way's lease.
func (a *Agent) askToGo(ctx context.Context, link *peer.Link, w askedWay) error {
	id := w.ask.Migration
	err := link.Call(ctx, http.MethodPost, "/v1/detours/repoint", w.ask, &talk.Prepared{})
	var problem *migration.Problem
	known := err == nil || errors.As(err, &problem) && problem.Code != migration.CodeInternal || time.Since(w.since) > cmp.Or(w.ask.Lease, a.config.LeaseTime())
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
	return errors.Join(err, a.dropTunnel(context.WithoutCancel(ctx), w.config.Name))
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
	end, err := a.tunnelEnd(id, w.kind, over.Local, private)
	if err != nil {
		return none, err
	}
	var answer talk.Prepared
	ask := Repoint{
		Migration: id, Guest: w.guest.name(), Addresses: w.addrs, Home: w.home, TunnelKey: public, Tunnel: end.Local, TunnelTo: over.Remote,
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
		if err := a.dropTunnel(ctx, end.Name); err != nil {
			return none, err
		}
	}
	t, err := bringUp(ctx, end)
	if err != nil {
		return none, err
	}
	if err = t.Verify(ctx); err != nil {
		return none, errors.Join(err, a.dropTunnel(context.WithoutCancel(ctx), end.Name))
	}
	ask.Go = true
	return askedWay{end, ask, time.Now()}, nil
}

// wayOver is the pair of uplinks over which a tunnel to a host is made: the first that carry guests, and all that is led, by which it answers.
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
