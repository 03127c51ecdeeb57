package talk

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/addresses"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// between is rome, whose neighbours are paris and oslo.
func between() *config.Config {
	up := func(addr string) []config.Uplink {
		return []config.Uplink{{Name: "public", Address: netip.MustParseAddr(addr), Carries: "both"}}
	}
	net := netip.MustParsePrefix
	return &config.Config{
		Host: "rome", Site: "rome", Uplinks: up("192.0.2.2"), Network: config.Network{Bridge: "br0", V4: net("10.2.1.0/24"), Gateway4: netip.MustParseAddr("10.2.1.1")},
		Peers: []config.Neighbour{
			{Host: "paris", Site: "paris", V4: net("10.1.1.0/24"), V6: net("fd00:1::/64"), Uplinks: up("192.0.2.1")},
			{Host: "oslo", Site: "oslo", V4: net("10.3.1.0/24"), Uplinks: up("192.0.2.3")},
			{Host: "rome2", Site: "rome", V4: net("10.2.1.0/24"), Uplinks: up("192.0.2.4")},
			{Host: "bonn2", Site: "bonn", V4: net("10.4.1.0/24"), Uplinks: up("192.0.2.5")},
		},
	}
}

// TestBelieve: a source leads here what is its own, what came home, or came through it, and
// nothing else.
func TestBelieve(t *testing.T) {
	here := between()
	taken := map[netip.Addr]string{netip.MustParseAddr("10.2.1.30"): "db", netip.MustParseAddr("10.2.1.31"): "web"}
	own := []net.Addr{&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}}
	whose := func(addr netip.Addr) string { return addresses.New(here, nil).Whose(addr, own) }
	held := func(home, prefix string) func(*Preparation) {
		return func(p *Preparation) {
			p.Plan.Held = []migration.Address{{Prefix: netip.MustParsePrefix(prefix), Home: home}}
		}
	}
	for name, c := range map[string]struct {
		change func(*Preparation)
		word   string
	}{
		"its own":                         {func(*Preparation) {}, ""},
		"comes home":                      {held("rome", "10.2.1.40/24"), ""},
		"of a third site":                 {held("oslo", "10.3.1.9/24"), ""},
		"of a home that nobody knows":     {held("cairo", "10.9.1.9/24"), ""},
		"of another host of this site":    {held("rome2", "10.2.1.41/24"), ""},
		"keeps its address":               {func(p *Preparation) { p.Plan.Network, p.Plan.Next = "tunnel", p.Plan.Held }, ""},
		"home here, of another subnet":    {held("rome", "10.1.1.9/24"), "not in the guests' subnet 10.2.1.0/24"},
		"of the subnet here, not of here": {held("cairo", "10.2.1.50/24"), "of the guests' subnet 10.2.1.0/24"},
		"not of its home's subnet":        {held("oslo", "10.1.1.9/24"), "not in the guests' subnet 10.3.1.0/24"},
		"of another guest here":           {held("rome", "10.2.1.30/24"), "guest db of this host has it"},
		"of the same guest here":          {held("rome", "10.2.1.31/24"), ""},
		"of a family its home has not":    {held("oslo", "fd00:3::9/64"), ""},
		"not of its home's IPv6 subnet":   {held("paris", "fd00:3::9/64"), "not in the guests' subnet fd00:1::/64"},
		"this host's own":                 {held("cairo", "192.0.2.2/32"), "this host's own"},
		"this machine's":                  {held("cairo", "127.0.0.1/32"), "this host's own"},
		"of a host, by which it is asked": {held("cairo", "192.0.2.3/32"), "host oslo's own"},
		"the router here":                 {held("rome", "10.2.1.1/24"), "the router"},
		"everybody's here":                {held("rome2", "10.2.1.255/24"), "the broadcast address"},
		"a tunnel to anywhere":            {func(p *Preparation) { p.Tunnel = netip.MustParseAddrPort("203.0.113.9:53") }, "no uplink of host paris"},
		"its own address behind a NAT":    {func(p *Preparation) { p.Tunnel = netip.MustParseAddrPort("10.0.0.5:53") }, "if a NAT stands between, join the hosts by a VPN (docs/agent.md, A VPN as uplink)"},
		"a tunnel to another of its site": {func(p *Preparation) {
			p.Plan.From, p.Tunnel = "bonn", netip.MustParseAddrPort("192.0.2.5:700")
		}, "no uplink of host bonn"},
		"memory by a tunnel to anywhere": {func(p *Preparation) {
			p.MemoryTunnels = []PathTunnel{{End: netip.MustParseAddrPort("203.0.113.9:53")}}
		}, "no uplink of host paris"},
		"memory by its own tunnel":       {func(p *Preparation) { p.MemoryTunnels = []PathTunnel{{End: p.Tunnel}} }, ""},
		"next address of another subnet": {func(p *Preparation) { p.Plan.Next[0].Prefix = netip.MustParsePrefix("10.3.1.9/24") }, "next address 10.3.1.9"},
		"next address of another home":   {func(p *Preparation) { p.Plan.Next[0].Home = "oslo" }, "next address"},
		"next address, the router's":     {func(p *Preparation) { p.Plan.Next[0].Prefix = netip.MustParsePrefix("10.2.1.1/24") }, "the router"},
	} {
		p := good()
		p.Tunnel = netip.MustParseAddrPort("192.0.2.1:700")
		c.change(&p)
		err := p.Believe(here, taken, whose)
		if (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}

// TestMemoryGoesThere: tunnels end at uplinks of the destination, and QEMU sends memory into one of them, or to such an
// uplink where it is not to be encrypted, whatever that host answers.
func TestMemoryGoesThere(t *testing.T) {
	here := between()
	at := netip.MustParseAddrPort
	mine, there, anywhere := at("192.0.2.2:701"), at("192.0.2.1:702"), at("203.0.113.9:702")
	_, inner := tunnel.InnerAddrs(mine, there)
	to := func(addr string) string { return "tcp:" + addr + ":900,mptcp=on" }
	secure, open := migration.Plan{To: "paris", Guest: "web", Transfer: "qemu-mptcp"}, migration.Plan{To: "paris", Guest: "web", Transfer: "qemu-tcp", Insecure: true}
	for name, c := range map[string]struct {
		plan          migration.Plan
		guests, pages netip.AddrPort
		memory        string
		word          string
	}{
		"in its tunnel":                {secure, there, there, to(inner.String()), ""},
		"beside its tunnel":            {secure, there, there, to("192.0.2.1"), "memory is to be sent to 192.0.2.1:900, which is no end of paris's"},
		"to this host":                 {secure, there, there, to("127.0.0.1"), "memory is to be sent to 127.0.0.1:900"},
		"by a tunnel to anywhere":      {secure, there, anywhere, to(inner.String()), "tunnel's end 203.0.113.9 is no uplink of host paris"},
		"guests' by one":               {secure, anywhere, there, to(inner.String()), "tunnel's end 203.0.113.9 is no uplink of host paris"},
		"open":                         {open, there, there, to("192.0.2.1"), ""},
		"open, to anywhere":            {open, there, there, to("203.0.113.9"), "memory is to be sent to 203.0.113.9:900"},
		"our own path, which names no": {migration.Plan{To: "paris", Transfer: "lanes"}, there, there, "", ""},
	} {
		p := Prepared{Tunnel: c.guests, Tunnels: []PathTunnel{{End: c.pages}}, Memory: c.memory}
		err := p.Believe(here, c.plan, []tunnel.Config{{Local: mine}})
		if (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
	p := Prepared{Tunnel: there, Tunnels: []PathTunnel{{End: there}, {End: there}}, Memory: to("192.0.2.1")} // more tunnels than were asked for
	if err := p.Believe(here, secure, []tunnel.Config{{Local: mine}}); err == nil {
		t.Error("memory beside the tunnels was believed")
	}
}
