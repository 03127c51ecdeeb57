package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// After a handover on a third site the destination has the homes of the guest's old addresses
// send them there directly, past the host that the guest came from.

// Repoint asks an address's home to send it to another host.
type Repoint struct {
	Migration string         `json:"migration"`
	Guest     string         `json:"guest"`
	Addresses []netip.Addr   `json:"addresses"`
	TunnelKey string         `json:"tunnel_key"`
	Tunnel    netip.AddrPort `json:"tunnel"`
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
	id, home, _ := strings.Cut(strings.TrimPrefix(r.Migration, "m-"), "-")
	switch {
	case !validID("m-"+id) || home != here || r.Migration != "m-"+id+"-"+here:
		return wrong("detour %.100q is not one to host %s", r.Migration, here)
	case !guestName.MatchString(r.Guest) || strings.Contains(r.Guest, ".."):
		return wrong("guest %.100q: not a name", r.Guest)
	case len(r.Addresses) == 0 || len(r.Addresses) > mostAddresses:
		return wrong("%d addresses", len(r.Addresses))
	case r.Lease < 0 || r.Lease > mostLease:
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

// repointHomes asks the home of every address that came over the source from
// elsewhere to send it here directly. A home that does not answer keeps sending
// over the source, whose lease then goes on.
func (a *Agent) repointHomes(ctx context.Context, m *incoming) {
	byHome := map[string][]netip.Addr{}
	for _, addr := range m.plan.Held {
		if addr.Home != m.plan.From && addr.Home != a.config.Host && slices.Contains(a.visiting(m.plan.Guest), addr.Prefix.Addr()) {
			byHome[addr.Home] = append(byHome[addr.Home], addr.Prefix.Addr())
		}
	}
	for home, addrs := range byHome {
		if err := a.repointHome(ctx, m, home, addrs); err != nil {
			m.rec.note(fmt.Sprintf("%s goes on sending over %s: %v", home, m.plan.From, err))
		}
	}
}

func (a *Agent) repointHome(ctx context.Context, m *incoming, home string, addrs []netip.Addr) (err error) {
	ctx, cancel := limitRepoint.on(ctx)
	defer cancel()
	defer func() { err = says(ctx, err) }()
	link, n, err := a.link(home)
	if err != nil {
		return err
	}
	local, _, ok := a.config.guestPath(n)
	if !ok {
		return errors.New("no uplink carries guests' traffic")
	}
	private, public, err := tunnel.NewKey()
	if err != nil {
		return err
	}
	id := m.plan.ID + "-" + home
	config, err := a.tunnelEnd(hashID(id), m.plan.Tunnel, local.Address, private)
	if err != nil {
		return err
	}
	var answer Prepared
	ask := Repoint{
		Migration: id, Guest: m.plan.Guest, Addresses: addrs, TunnelKey: public, Tunnel: config.Local,
		Kind: m.plan.Tunnel, Lease: leaseTime, Forever: m.plan.KeepsAddress(),
	}
	if err := link.Call(ctx, http.MethodPost, "/v1/detours/repoint", ask, &answer); err != nil {
		return err
	}
	if config.PeerKey, err = tunnel.ParseKey(answer.TunnelKey); err != nil {
		return err
	}
	config.Remote = answer.Tunnel
	t, err := tunnel.Up(ctx, config)
	if err != nil {
		return err
	}
	if _, err = t.Verify(ctx); err == nil {
		ask.Go = true
		err = link.Call(ctx, http.MethodPost, "/v1/detours/repoint", ask, &answer)
	}
	if err != nil {
		return errors.Join(err, a.dropTunnel(context.WithoutCancel(ctx), config.Name))
	}
	return a.takeWay(m, &detour{ID: id, Guest: m.plan.Guest, Peer: home, Tunnel: config, Up: clock.Now(), Taps: m.work.guest.Held.Taps}, addrs)
}

// takeWay has d be the way of addresses from now on, in place of the detours that were.
func (a *Agent) takeWay(m *incoming, d *detour, addrs []netip.Addr) error {
	return a.detours.change(m.plan.Guest, func(all map[string]*detour) {
		for _, other := range all {
			if other.Guest != m.plan.Guest {
				continue
			}
			other.Visiting = slices.DeleteFunc(other.Visiting, func(v netstate.Visiting) bool {
				if !slices.Contains(addrs, v.Addr) {
					return false
				}
				v.Tunnel = d.Tunnel.Name
				d.Visiting = append(d.Visiting, v)
				return true
			})
		}
		all[d.ID] = d
	})
}

// peerRepoint sends addresses of a guest whose home is here to the caller: asked first,
// it makes its end of a tunnel; asked to go, it sends them there. One that nobody asks to
// go ends soon.
func (a *Agent) peerRepoint(r *http.Request) (any, error) {
	var ask Repoint
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	caller := peer.Caller(r)
	if err := ask.check(a.config.Host); err != nil {
		return nil, err
	}
	if err := a.uplinkOf(caller, ask.Tunnel.Addr(), "repoint guest "+ask.Guest); err != nil {
		return nil, err
	}
	if d, ok := a.detours.get(ask.Migration); ok && (d.Guest != ask.Guest || d.Peer != caller) {
		return nil, notBelieved("repoint guest %s: detour %s is of guest %s, with %s", ask.Guest, d.ID, d.Guest, d.Peer)
	}
	if len(a.awayOf(ask.Guest, ask.Addresses)) != len(ask.Addresses) {
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("repoint guest %s: host %s does not send all of %v away", ask.Guest, a.config.Host, ask.Addresses)}
	}
	if ask.Go {
		return Prepared{}, a.sendDirectly(ask, caller)
	}
	_, n, err := a.link(caller)
	if err != nil {
		return nil, err
	}
	local, _, ok := a.config.guestPath(n)
	if !ok {
		return nil, &migration.Problem{Code: migration.CodePath, Text: "no uplink carries guests' traffic"}
	}
	if d, ok := a.detours.get(ask.Migration); ok && d.Tunnel.PeerKey.String() == ask.TunnelKey { // asked again
		return Prepared{TunnelKey: d.Tunnel.PrivateKey.PublicKey().String(), Tunnel: d.Tunnel.Local}, nil
	}
	private, public, err := tunnel.NewKey()
	if err != nil {
		return nil, err
	}
	config, err := a.tunnelEnd(hashID(ask.Migration), ask.Kind, local.Address, private)
	if err != nil {
		return nil, err
	}
	if config.Kind == tunnel.VXLAN {
		config.Local = netip.AddrPortFrom(local.Address, ask.Tunnel.Port())
	}
	if config.PeerKey, err = tunnel.ParseKey(ask.TunnelKey); err != nil {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: "repoint: the tunnel's key is not one"}
	}
	config.Remote = ask.Tunnel
	if _, err := tunnel.Up(r.Context(), config); err != nil {
		return nil, err
	}
	err = a.detours.change(ask.Guest, func(all map[string]*detour) {
		all[ask.Migration] = &detour{ID: ask.Migration, Guest: ask.Guest, Peer: caller, Tunnel: config, Up: clock.Now()}
	})
	return Prepared{TunnelKey: public, Tunnel: config.Local}, err
}

// sendDirectly sends addresses into the tunnel that was made for them. Done twice, it is
// done once.
func (a *Agent) sendDirectly(ask Repoint, caller string) error {
	if d, ok := a.detours.get(ask.Migration); !ok || d.Guest != ask.Guest || d.Peer != caller {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("repoint guest %s: host %s has no tunnel to %s for that", ask.Guest, a.config.Host, caller)}
	}
	return a.detours.change(ask.Guest, func(all map[string]*detour) {
		d := all[ask.Migration]
		if d.leaseFor(ask.Lease); ask.Forever {
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
				away.Tunnel = d.Tunnel.Name
				d.Away = append(d.Away, away)
				return true
			})
			if len(other.Away)+len(other.Visiting) == 0 {
				other.Leased, other.Up = true, clock.Now() // ended soon, when nothing is on its way through it
			}
		}
	})
}

// awayOf are those of addrs that this host sends away for guest.
func (a *Agent) awayOf(guest string, addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, d := range a.detours.list(guest) {
		for _, away := range d.Away {
			if slices.Contains(addrs, away.Addr) {
				out = append(out, away.Addr)
			}
		}
	}
	return out
}
