package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
)

// A subnet agent is an agent on another machine of a host's subnet, which stands for the old
// addresses of guests that have left it, so that the host itself can be switched off. After
// the handover, when a detour is to be leased, the guest's host asks the subnet agent to send
// the address to it, as it asks a third home (detour_repoint.go). The subnet agent asks the home
// whether that hands the address over, and to whom. From then on it is the home.

// namesSubnetAgent says of addresses whose home is here who can stand for them.
func (a *Agent) namesSubnetAgent(held []migration.Address) []migration.Address {
	for i := range held {
		if held[i].Home == a.config.Host {
			held[i].SubnetAgent = a.config.SubnetAgent
		}
	}
	return held
}

// standIn is a subnet agent, and what it is to stand for, in place of the home.
type standIn struct{ agent, home string }

// standIns has subnet agents stand for the guest's old addresses. One that does not leaves
// the home as it is, and is asked again later on (retryStandIns). The error is errUnanswered.
func (m *incoming) standIns(ctx context.Context) error {
	g := m.work.guest
	for s, addrs := range m.a.standable(g) {
		w := way{guest: g, migration: m.plan.ID, kind: m.plan.Tunnel, host: s.agent, home: s.home, addrs: addrs, lease: m.a.config.LeaseTime(), forever: m.leaseOf(addrs) == 0}
		err := m.a.standFor(ctx, w, m.plan.ID)
		if errors.Is(err, errUnanswered) {
			m.rec.NoteOnce(s.agent + " is asked on to stand for addresses: whether it does is not known")
			return err
		}
		if err != nil {
			g.Asks().Asked(time.Now())
			m.rec.Note(fmt.Sprintf("%s does not stand for %v, and %s stays their home: %v", s.agent, addrs, s.home, err))
			continue
		}
		m.rec.Note(fmt.Sprintf("%s stands for %v, and %s is not needed for them any more", s.agent, addrs, s.home))
	}
	return nil
}

// standable are addresses of a guest here that a tunnel from their home leads to, although
// there is a subnet agent for them.
func (a *Agent) standable(g *guests.Guest) map[standIn][]netip.Addr {
	led := map[netip.Addr]bool{}
	for _, d := range a.detours.List(g.Name()) {
		for _, v := range d.Visiting {
			led[v.Addr] = !v.AtHome()
		}
	}
	out := map[standIn][]netip.Addr{}
	for _, addr := range g.Held().Addresses {
		if s := addr.SubnetAgent; s != "" && s != addr.Home && s != a.config.Host && led[addr.Prefix.Addr()] {
			out[standIn{s, addr.Home}] = append(out[standIn{s, addr.Home}], addr.Prefix.Addr())
		}
	}
	return out
}

// standFor makes w.host the home of w.addrs, in place of w.home. Detours from that home which
// lead nothing any more end, but for one that its own migration is about to end.
func (a *Agent) standFor(ctx context.Context, w way, but string) error {
	if err := a.repointHome(ctx, w); err != nil {
		return err
	}
	w.guest.Remember(func(h *care.Held) {
		for i := range h.Addresses {
			if addr := &h.Addresses[i]; addr.Home == w.home && slices.Contains(w.addrs, addr.Prefix.Addr()) {
				addr.Home = w.host
			}
		}
	})
	err := a.guests.SaveIfHere(w.guest)
	a.endEmptied(w.guest.Name(), w.home, but, "")
	return err
}

// mayAsk says whether a subnet agent is to be asked for the guest now.
func mayAsk(g *guests.Guest, at time.Time) bool { return g.Migration() == "" && g.Asks().MayAsk(at) }

// retryStandIns asks subnet agents that were away, or are new, for the guests here.
func (a *Agent) retryStandIns() {
	for _, g := range a.guests.All() {
		if now := time.Now(); mayAsk(g, now) && len(a.standable(g)) > 0 {
			g.Asks().Asked(now)
			a.actors.Go(func() { a.retryStandIn(g) })
		}
	}
}

func (a *Agent) retryStandIn(g *guests.Guest) {
	g.LockAddresses() // a migration that is asked for meanwhile waits, and goes with what came of it
	defer g.UnlockAddresses()
	for s, addrs := range a.standable(g) {
		d, ok := a.leasedWay(g.Name(), addrs)
		if !ok || g.Migration() != "" {
			return
		}
		w := way{guest: g, migration: migrationOf(d.ID), kind: d.Tunnel.Kind, host: s.agent, home: s.home, addrs: addrs, lease: d.Left(), forever: d.Until.IsZero()}
		err := a.standFor(a.ctx, w, "")
		if errors.Is(err, errUnanswered) {
			g.Asks().AskedInVain()
		}
		a.log.Info("a subnet agent was asked again", "guest", g.Name(), "subnet_agent", s.agent, "addresses", addrs, "error", err)
	}
}

// leasedWay is the leased detour by which addresses come here.
func (a *Agent) leasedWay(guest string, addrs []netip.Addr) (detour.Detour, bool) {
	for _, d := range a.detours.List(guest) {
		if d.Leased && slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return slices.Contains(addrs, v.Addr) }) {
			return d, true
		}
	}
	return detour.Detour{}, false
}

// peerHanded tells this host's subnet agent, and nobody else, which of its addresses it leads
// to a host: those, it may lead there from now on.
func (a *Agent) peerHanded(r *http.Request) (any, error) {
	var ask talk.Handing
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	if caller := peer.Caller(r); a.config.SubnetAgent == "" || caller != a.config.SubnetAgent {
		return nil, talk.NotBelieved("host %s stands for no address of %s", caller, a.config.Host)
	}
	var answer talk.Handed
	for _, d := range a.detours.List(ask.Guest) {
		for _, away := range d.Away {
			way, _ := a.detours.ComesFrom(ask.Guest, away.Addr)
			if away.Active && way == "" && d.Peer == ask.To && slices.Contains(ask.Addresses, away.Addr) {
				answer.Addresses = append(answer.Addresses, talk.HandedAddress{Addr: away.Addr, MAC: away.MAC.String(), Fits: away.Fits})
			}
		}
	}
	if len(answer.Addresses) != len(ask.Addresses) {
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"guest %s: host %s does not lead all of %v to %.100q", ask.Guest, a.config.Host, ask.Addresses, ask.To)}
	}
	return answer, nil
}

// leads says whether this host sends all that a caller asks for away, to where they are led on to
// the caller, and what else it is to stand for: addresses that their home hands over to it.
func (a *Agent) leads(ctx context.Context, ask talk.Repoint, caller string) ([]netstate.Away, error) {
	sent := a.awayOf(ask.Guest, ask.Addresses)
	rest := slices.DeleteFunc(slices.Clone(ask.Addresses), func(addr netip.Addr) bool { return slices.Contains(sent, addr) })
	led := a.leadsOn(ctx, talk.Led{Guest: ask.Guest, Addresses: sent, To: caller, Hops: talk.MostHops})
	switch {
	case led == nil && len(rest) == 0:
		return nil, nil
	case led != nil && ask.Home == "":
		return nil, led
	case led != nil: // sent there at an earlier time
		rest = slices.Clone(ask.Addresses)
	}
	if ask.Home == "" {
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("repoint guest %s: host %s does not send all of %v away", ask.Guest, a.config.Host, ask.Addresses)}
	}
	if err := a.mayStand(ask.Guest, ask.Home, rest); err != nil {
		return nil, err
	}
	link, _, err := a.link(ask.Home)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limits.AskHome.On(ctx)
	defer cancel()
	var answer talk.Handed
	if err := limits.Says(ctx, link.Call(ctx, http.MethodPost, "/v1/detours/handed", talk.Handing{Guest: ask.Guest, Addresses: rest, To: caller}, &answer)); err != nil {
		return nil, fmt.Errorf("ask %s whether it hands %v over: %w", ask.Home, rest, err)
	}
	return answer.Standing(a.config.Network, rest)
}

// mayStand says why this host cannot stand for addresses of home.
func (a *Agent) mayStand(guest, home string, addrs []netip.Addr) error {
	if n, ok := a.config.Peer(home); !ok || n.Site != a.config.Site {
		return talk.NotBelieved("stand for addresses of %.100q: it is no other host of site %s", home, a.config.Site)
	}
	if _, err := a.guests.Find(guest); err == nil {
		return talk.NotBelieved("stand for addresses of guest %s: it is on this host", guest)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("stand for addresses of guest %s: %w", guest, err)
	}
	taken := a.takenAddresses()
	for _, addr := range addrs {
		subnet, owner := a.config.Network.SubnetOf(addr), taken[addr]
		_, visits := a.detours.ComesFrom(guest, addr)
		switch {
		case !subnet.Contains(addr) || addr == a.config.Network.GatewayOf(addr.Is4()):
			return talk.NotBelieved("stand for address %s: not one of guests in the subnet %s of this host", addr, subnet)
		case addresses.Among(own, addr):
			return talk.NotBelieved("stand for address %s: it is this host's own", addr)
		case owner != "" && owner != guest || visits:
			return talk.NotBelieved("stand for address %s of guest %s: guest %s of this host has it", addr, guest, owner)
		}
	}
	return nil
}

// Neighbours are told for so long, so often, where an address is: longer than its home goes
// on answering for it, too (underway).
const (
	announceFor   = 5 * time.Second
	announceEvery = 200 * time.Millisecond
)

// announce tells the neighbours that what detour id sends away is to be sent to this host. It
// returns when they were told once, and goes on for announceFor.
func (a *Agent) announce(id string) {
	tell := func() bool {
		d, ok := a.detours.Get(id)
		return a.tellOf(d, a.config.Network.LAN) && ok
	}
	if !tell() {
		return
	}
	a.actors.Go(func() {
		for until := time.Now().Add(announceFor); time.Now().Before(until) && sleep(a.ctx, announceEvery) && tell(); {
		}
	})
}
