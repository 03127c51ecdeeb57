package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/outside"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
)

// fromOutside is the channel of a guest whose description says agent: dhcp. It goes on
// answering for the addresses that were given before.
func (a *Agent) fromOutside(g *guests.Guest) *outside.Channel {
	o := outside.New(outside.Config{
		Guest: g.Name(), NICs: g.Held().Description.NICs, Taps: g.Held().Taps, Active: func() int { return g.Held().Active }, SetLink: g.SetLink,
		Bridge: a.config.Network.Bridge, MTU: a.config.Network.MTU, Server: a.serverID(),
	})
	nic := g.Held().Active
	for _, addr := range g.Held().Addresses {
		if !addr.Granted || nic < 0 || nic >= len(g.Held().Taps) {
			continue
		}
		if err := o.GoOn(nic, addr.Prefix, addr.Gateway); err != nil {
			a.log.Warn("go on serving a guest", "guest", g.Name(), "error", err)
		}
		nic = 1 - nic // the kept one is on the other
	}
	return o
}

// serverID names this host as a DHCP server: its own address, so that a server of the
// site's LAN does not believe to be meant.
func (a *Agent) serverID() netip.Addr {
	for _, u := range a.config.Uplinks {
		if u.Address.Is4() {
			return u.Address
		}
	}
	return netip.Addr{}
}

// grantable are those of the next addresses that can be given by DHCP, or to a guest
// that has IPv6 turned off: of IPv4.
func (a *Agent) grantable(offer talk.Offer, next []migration.Address) ([]migration.Address, error) {
	next = slices.DeleteFunc(next, func(addr migration.Address) bool {
		if addr.Prefix.Addr().Is4() {
			return false
		}
		a.book.Release(offer.Plan.Guest, addr.Prefix.Addr())
		return true
	})
	why := "the guest has IPv6 turned off; turn it on, or"
	if offer.Description.Silent() {
		why = "addresses are given by DHCP in IPv4 only;"
	}
	switch want := offer.Plan.Want; {
	case len(next) == 0:
		return nil, refuses(a.config.Host, offer, migration.CodeAddress, "its guests' subnet is IPv6 alone, and %s use --network tunnel", why)
	case want.Is6():
		return nil, refuses(a.config.Host, offer, migration.CodeAddress, "next address %s: %s name another with --address", want, why)
	}
	return next, nil
}

// grantPause is between two tries to give a guest its first address, which may fail at once.
const grantPause = time.Second

// grantFirst gives a guest that boots its first address, as often as it takes.
func (a *Agent) grantFirst(ctx context.Context, g *guests.Guest) error {
	var first []migration.Address
	for _, addr := range g.Held().Addresses {
		if addr.Prefix.Addr().Is4() {
			addr.Granted = true
			first = append(first, addr)
		}
	}
	a.guests.GiveAddresses(g, first)
	ctx, cancel := limits.Boot.On(ctx)
	defer cancel()
	o := a.fromOutside(g)
	g.SpeakBy(o)
	for {
		_, err := o.Configure(ctx, handed.Configure(g.Held(), a.config.Network, g.Held().Active, g.Held().Addresses, 0, true))
		if err == nil || !sleep(ctx, grantPause) {
			return limits.Says(ctx, err)
		}
	}
}

// unseen says whether a guest's tunnel is so young that a silent connection through it
// may not have been seen yet.
func (a *Agent) unseen(name string) bool {
	return slices.ContainsFunc(a.detours.List(name), func(d detour.Detour) bool { return clock.Now().Sub(d.Up) < netstate.FlowMemory })
}
