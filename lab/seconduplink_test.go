package lab

import (
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/lab/wan"
	"godwit/migration"
)

const secondUplinkWorld = `
name: second-uplink
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}, {name: second, carries: both, rate: 350mbit, delay: 3ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

// TestFirstUplinkIsDown: a guest leaves a site whose first uplink is down by the second, by which its clients come, and
// loses none of what they say. Once it is the second that is down, the tunnel goes on by the first.
func TestFirstUplinkIsDown(t *testing.T) {
	p := newTrial(t, secondUplinkWorld, func(string, *config.Config) {})
	downIs := func(down, up, number string) {
		p.must(p.w.topo.SetLink("montreal", up, func(l *wan.Link) { l.Cut = wan.CutNone }))
		p.must(p.w.topo.SetLink("montreal", down, func(l *wan.Link) { l.Cut = wan.CutBoth }))
		p.in(p.w.topo.Core(), "ip", "route", "replace", "10.1.1.0/24", "dev", "s0u"+number) // as routers do
		p.in("gw"+p.w.id+"-r-montreal", "ip", "route", "replace", "default", "dev", "up"+number)
	}
	downIs("public", "second", "1")
	flows := p.begin("ticks", p.addresses("montreal")[0])
	rep := p.ends(p.began(migration.Request{Guest: "web", To: "sanjose", Network: "tunnel"}), 60*time.Second)
	p.is("by the second", rep.Outcome, migration.Completed)
	p.noted(rep, "led over second-public, as public-public does not do")
	p.over(flows, false)
	address, was := p.addresses("sanjose")[0], p.tunnel("sanjose").Remote.Addr()
	downIs("second", "public", "0")
	eventually(t, "the tunnel takes the pair that answers", func() bool { return p.tunnel("sanjose").Remote.Addr() != was })
	flows = p.begin("later", address)
	p.over(flows, false)
}

// tunnel is the one that web has on a host.
func (p *trial) tunnel(host string) api.GuestTunnel {
	p.Helper()
	g, err := p.guest(host, "web")
	p.must(err)
	if len(g.Tunnels) != 1 {
		p.Fatalf("tunnels %+v", g.Tunnels)
	}
	return g.Tunnels[0]
}
