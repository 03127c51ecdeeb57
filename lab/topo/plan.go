package topo

import (
	"fmt"
	"net/netip"
	"slices"
)

// The address plan. Numbers count from 0: site i, uplink u of a site, client k,
// uplink j of a client; hosts h of a site count from 1. IPv6 groups show the same
// decimal digits as the IPv4 octets.
//
//	site i, uplink u   100.(64+i).u.0/24        fd64:i:u::/64             .1 router, .10+h host
//	site i, access     198.18.i.0/24            fd18:i::/64               .1 router, .10+k client
//	internet, client   198.19.(64j+k).0/24      fd19:(64j+k)::/64         .1 core, .2 client
//	behind NAT         100.(64+k).(128+j).0/24  fd64:(64+k):(128+j)::/64  .1 nat, .2 client
//
// A client that moves gets a host number that it did not have before, see octet.

func (s Spec) namespace(node string) string { return "gw" + s.ID + "-" + node }

const coreNode = "core"

func routerNode(site string) string { return "r-" + site }
func hostNode(host string) string   { return "h-" + host }
func clientNode(name string) string { return "c-" + name }
func natNode(name string) string    { return "nat-" + name }

// Devices of a router: one per uplink, a bridge each, and a port per host on them.
func upDevice(u int) string      { return fmt.Sprintf("up%d", u) }
func upBridge(u int) string      { return fmt.Sprintf("up%dbr", u) }
func upPort(u, h int) string     { return fmt.Sprintf("h%du%d", h, u) }
func lanPort(h int) string       { return fmt.Sprintf("lan%d", h) }
func trunkPort(h int) string     { return fmt.Sprintf("trunk%d", h) } // the wire, where lanPort is a VLAN of it
func coreDevice(i, u int) string { return fmt.Sprintf("s%du%d", i, u) }
func accPort(k, j int) string    { return fmt.Sprintf("c%dn%d", k, j) }

// Names that every router or host has.
const (
	lanBridge    = "lan"
	accessBridge = "acc"
	guestBridge  = "br-guest"
	hostLAN      = "lan0"
	hostTrunk    = "eth0" // the host's wire to the router, where guests are in a VLAN of it
)

// upTable is the routing table of uplink u, in routers and in hosts.
func upTable(u int) int { return 100 + u }

// Core is the namespace of the internet.
func (t *Topo) Core() string { return t.spec.namespace(coreNode) }

func prefix4(a, b, c, d int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)}), 24)
}

func prefix6(format string, args ...any) netip.Prefix {
	return netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf(format, args...)), 64)
}

// uplinkNet returns the address with host number n on uplink u of site i, with the
// length of its subnet.
func uplinkNet(i, u, n int) (v4, v6 netip.Prefix) {
	return prefix4(100, 64+i, u, n), prefix6("fd64:%d:%d::%d", i, u, n)
}

// accessNet returns the address with host number n on the access network of site i.
func accessNet(i, n int) (v4, v6 netip.Prefix) {
	return prefix4(198, 18, i, n), prefix6("fd18:%d::%d", i, n)
}

// internetNet is the like for uplink j of client k on the core.
func internetNet(k, j, n int) (v4, v6 netip.Prefix) {
	return prefix4(198, 19, 64*j+k, n), prefix6("fd19:%d::%d", 64*j+k, n)
}

// coreAddresses are the core's own.
func coreAddresses() (v4, v6 netip.Prefix) {
	return netip.MustParsePrefix("198.19.255.1/32"), netip.MustParsePrefix("fd19:ffff::1/128")
}

// privateNet is the like behind the NAT of client k.
func privateNet(k, j, n int) (v4, v6 netip.Prefix) {
	return prefix4(100, 64+k, 128+j, n), prefix6("fd64:%d:%d::%d", 64+k, 128+j, n)
}

// gateway returns the first address of a guests' subnet with its length; invalid stays
// invalid.
func gateway(guest netip.Prefix) netip.Prefix {
	if !guest.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(guest.Masked().Addr().Next(), guest.Bits())
}

// site returns the number of the site name, -1 if there is none.
func (s Spec) site(name string) int {
	return slices.IndexFunc(s.Sites, func(site Site) bool { return site.Name == name })
}

// guestUplink is the uplink for guests, access networks and tunnels: the first that
// carries guest traffic.
func (s Site) guestUplink() int {
	return slices.IndexFunc(s.Uplinks, func(u Uplink) bool { return u.Carries != "migration" })
}

// hostNames returns SITE, or SITE-1, SITE-2 … where there are several.
func (s Spec) hostNames(i int) []string {
	site := s.Sites[i]
	if site.Hosts == 1 {
		return []string{site.Name}
	}
	var names []string
	for h := 1; h <= site.Hosts; h++ {
		names = append(names, fmt.Sprintf("%s-%d", site.Name, h))
	}
	return names
}

// hosts describes the hosts of site i.
func (s Spec) hosts(i int) []Host {
	site := s.Sites[i]
	var hosts []Host
	for n, name := range s.hostNames(i) {
		host := Host{
			Name: name, Site: site.Name, Namespace: s.namespace(hostNode(name)),
			Bridge: guestBridge, LAN: site.lan(),
		}
		if site.GuestV4.IsValid() {
			host.GuestV4, host.GatewayV4 = site.GuestV4.Masked(), gateway(site.GuestV4).Addr()
		}
		if site.GuestV6.IsValid() {
			host.GuestV6, host.GatewayV6 = site.GuestV6.Masked(), gateway(site.GuestV6).Addr()
		}
		if site.OneNIC {
			host.Uplinks = []HostUplink{site.onBridge(n)}
			hosts = append(hosts, host)
			continue
		}
		for u, uplink := range site.Uplinks {
			v4, v6 := uplinkNet(i, u, 10+n+1)
			gw4, gw6 := uplinkNet(i, u, 1)
			host.Uplinks = append(host.Uplinks, HostUplink{
				Name: uplink.Name, Device: upDevice(u), Carries: uplink.Carries,
				V4: v4.Addr(), V6: v6.Addr(), GatewayV4: gw4.Addr(), GatewayV6: gw6.Addr(),
				Rate: uplink.Link.Rate,
			})
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// onBridge is the uplink of host n where that is the bridge of the guests: it has the addresses behind the router's.
func (s Site) onBridge(n int) HostUplink {
	first := s.Uplinks[s.guestUplink()]
	u := HostUplink{
		Name: first.Name, Device: guestBridge, Carries: first.Carries, Rate: first.Link.Rate,
		GatewayV4: gateway(s.GuestV4).Addr(), GatewayV6: gateway(s.GuestV6).Addr(),
	}
	u.V4, u.V6 = u.GatewayV4, u.GatewayV6
	for range n + 1 {
		u.V4, u.V6 = u.V4.Next(), u.V6.Next()
	}
	return u
}

// nodes names every node of the lab.
func (s Spec) nodeNames() []string {
	names := []string{coreNode}
	for i, site := range s.Sites {
		names = append(names, routerNode(site.Name))
		for _, host := range s.hostNames(i) {
			names = append(names, hostNode(host))
		}
	}
	for _, client := range s.Clients {
		names = append(names, clientNode(client.Name))
		if client.NAT {
			names = append(names, natNode(client.Name))
		}
	}
	return names
}
