package main

import (
	"net/netip"
	"testing"

	"godwit/vm/guest"
)

// TestChannelKeepsAnotherFamily: old addresses that something still uses move to a NIC whose site has one family alone, and
// what has the other's leaves by the router that the host answers for.
func TestChannelKeepsAnotherFamily(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		for _, site := range []struct {
			name      string
			addr, old netip.Prefix // that the site gives; of the family that it lacks
			gateway   netip.Addr
			to        string
		}{{"IPv4", nextV4, oldV6, oldGW6, "2001:db8::1"}, {"IPv6", nextV6, oldV4, oldGW4, "192.0.2.1"}} {
			_, err := c.Configure(ctx, configureOld())
			must(t, err)
			next := configureNext()
			next.Addrs = []netip.Prefix{site.addr}
			if next.GatewayV6 = nextGW6; site.addr.Addr().Is4() {
				next.GatewayV6 = netip.Addr{}
			} else {
				next.GatewayV4 = netip.Addr{}
			}
			_, err = c.Configure(ctx, next)
			must(t, err)
			must(t, c.MakeMain(ctx, secondMAC))
			old := []netip.Addr{oldV4.Addr(), oldV6.Addr()}
			retire := guest.Retire{Addrs: old, MAC: firstMAC, NewMAC: secondMAC, Keep: true, Stay: true}
			if site.gateway.Is4() {
				retire.KeepGatewayV4 = site.gateway
			} else {
				retire.KeepGatewayV6 = site.gateway
			}
			must(t, c.Retire(ctx, retire))
			retire.Stay = false
			must(t, c.Retire(ctx, retire))
			contains(t, "route from the kept address of a family that a site of "+site.name+" lacks",
				lookup(t, site.old.Addr().String(), site.to), "via "+site.gateway.String()+" dev nic1 table 27369")
			must(t, c.DropAddress(ctx, old...))
			must(t, c.DropAddress(ctx, site.addr.Addr()))
		}
	})
}
