package main

import (
	"net/netip"
	"testing"

	"godwit/vm/guest"
	"godwit/vm/guest/qga"
)

// TestChannelKeepsByAnotherRouter: what leaves by addresses that are kept takes another router once it is told of one.
func TestChannelKeepsByAnotherRouter(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		for _, site := range []string{"8", "7"} {
			v4, v6 := netip.MustParseAddr("10.9."+site+".1"), netip.MustParseAddr("fd00:9:"+site+"::1")
			retire := guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true,
				GatewayV4: v4, KeepGatewayV4: v4, KeepGatewayV6: v6}
			must(t, c.Retire(ctx, retire))
			contains(t, "route from the kept address", lookup(t, "10.9.1.10", "192.0.2.1"), "via "+v4.String()+" dev nic1 table 27369")
			contains(t, "IPv6 route from the kept address", lookup(t, "fd00:9:1::10", "2001:db8::1"), "via "+v6.String()+" dev nic1 table 27369")
			if _, ok := c.(*qga.Client); !ok { // whose scripts have no NIC linger
				contains(t, "route of a server that names the old NIC", lookup(t, "10.9.1.10", "192.0.2.1", "oif", "nic0"), "via "+v4.String()+" dev nic0")
			}
		}
	})
}
