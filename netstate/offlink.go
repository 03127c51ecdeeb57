package netstate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// OffLink is a NIC of the guest that came here from another link (RFC 4861 §2.1), with addresses of
// that. It does not hear the routers of this one: the guest would give itself an address of a subnet
// that it only visits, and a default route by a NIC that has no other business here (RFC 4862 §5.5). Nor do
// DHCP servers of this one hear it, which would refuse it what it has. What it asks its own, as it does first, goes
// there by the tunnel.
type OffLink struct {
	Tap     string       // that NIC's
	Routers []netip.Addr // by whose link-local addresses the guest knows the routers of its own link: the host answers for them, at this tap alone
}

func (o OffLink) validate() error {
	if len(o.Routers) > MaxAdvertisements {
		return fmt.Errorf("NIC at %s: %d routers, at most %d", o.Tap, len(o.Routers), MaxAdvertisements)
	}
	for _, r := range o.Routers {
		if !routerAddress(r) {
			return fmt.Errorf("NIC at %s: router %s has no link-local address", o.Tap, r)
		}
	}
	return device("tap", o.Tap)
}

// Kinds of ICMPv6 by which routers speak to hosts, and are asked to (RFC 4861 §4.1, §4.2, §4.5).
const (
	routerAsked      = 133
	routerAdvertises = 134
	routerRedirects  = 137
)

// offLinkEgress returns the rules of a guest's postrouting chain that keep routers of this link from
// its NICs of another.
func offLinkEgress(s State) []bridgeRule {
	var rules []bridgeRule
	for _, o := range s.OffLink {
		for _, kind := range []byte{routerAdvertises, routerRedirects} {
			rules = append(rules, bridgeRule{words("offlink", "to", o.Tap, "icmp6", strconv.Itoa(int(kind))), join(oif(o.Tap), icmp6Carried(kind), drop())})
		}
	}
	return rules
}

// offLinkIngress returns those of its prerouting chain: nor does it ask them. Who asks for a router
// of its own link, which may have the address of one here, asks the host.
func offLinkIngress(s State, bridge net.HardwareAddr) []bridgeRule {
	var rules []bridgeRule
	for _, o := range s.OffLink {
		for _, r := range o.Routers {
			rules = append(rules, bridgeRule{words("offlink", "asks", r.String(), "tap", o.Tap, "host", bridge.String()), join(iif(o.Tap), asksFor(r), toHost(bridge))})
		}
		rules = append(rules,
			bridgeRule{words("offlink", "from", o.Tap, "dhcp", "4"), join(iif(o.Tap), group(), dhcpAsked(), drop())},
			bridgeRule{words("offlink", "from", o.Tap, "dhcp", "6"), join(iif(o.Tap), group(), dhcp6Asked(), drop())})
		rules = append(rules, bridgeRule{words("offlink", "from", o.Tap, "icmp6", strconv.Itoa(routerAsked)), join(iif(o.Tap), icmp6Carried(routerAsked), drop())})
	}
	return rules
}

// offLinkInput returns those of its chain of frames that go up to the host: see input.
func offLinkInput(s State, own []netip.Addr) []bridgeRule {
	var rules []bridgeRule
	for _, o := range s.OffLink {
		for _, r := range o.Routers {
			if slices.Contains(own, r) {
				continue
			}
			rules = append(rules, bridgeRule{words("offlink", "others", r.String()), join(group(), asksFor(r), drop())})
		}
	}
	return rules
}

// offLink lists what else a NIC of another link needs.
func offLink(bridge string, o OffLink) []resource {
	var list []resource
	for _, r := range o.Routers {
		list = append(append(list, sysctls(bridge, bridge, r)...), proxy{bridge, r, true})
	}
	return list
}

// icmp6Carried matches a kind of ICMPv6 also behind extension headers, by which a filter may be
// passed that looks at the first only (RFC 7113 §2.1).
func icmp6Carried(kind byte) []expr.Any {
	return join(etherType(unix.ETH_P_IPV6), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{unix.IPPROTO_ICMPV6}),
		load(expr.PayloadBaseTransportHeader, 0, 1), equals([]byte{kind}),
	})
}
