package lab

import (
	"net/netip"
	"testing"
	"time"

	"godwit/lab/traffic"
	"godwit/migration"
)

// A full queue of a link would drop datagrams, too: see subnetWorld.
const threeSites = `name: three
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 1gbit, delay: 5ms, queue: 4MiB}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 1gbit, delay: 5ms, queue: 4MiB}]}
  - {name: oslo, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: public, rate: 1gbit, delay: 5ms, queue: 4MiB}]}
clients:
  - {name: phone, at: internet}
`

// TestOneNIC: a guest with one NIC, to which nobody can talk, keeps its address for good: it visits a site,
// goes on to a third, to which its home then sends directly, and comes home, where no tunnel is left.
func TestOneNIC(t *testing.T) {
	w := buildWorld(t, threeSites)
	p := &trial{T: t, w: w}
	addr := netip.MustParsePrefix("10.1.1.50/24")
	f := startForeignWith(t, w, "montreal", addr, netip.MustParseAddr("10.1.1.1"), 1)
	d := f.describe(t, w, "channel: "+f.channel(), "network: tunnel\naddresses: [{prefix: "+addr.String()+"}]",
		"socket,id=guest,server=on,wait=off,path={channel}", "null,id=guest")
	if _, err := w.agents["montreal"].client.StartGuest(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	flows := []traffic.Flow{{Name: "ticks", Kind: traffic.Ticks, Target: addr.Addr()}, {Name: "udp", Kind: traffic.UDP, Target: addr.Addr(), Every: 20 * time.Millisecond}}
	for _, flow := range flows {
		p.must(w.clients["phone"].Start(flow))
	}
	for _, hop := range [][2]string{{"montreal", "sanjose"}, {"sanjose", "oslo"}, {"oslo", "montreal"}} {
		rep := migrate(t, w.agents[hop[0]], hop[1])
		if rep.Outcome != migration.Completed || rep.Network != "tunnel" {
			t.Fatalf("%s → %s by %s: %s: %v", hop[0], hop[1], rep.Network, rep.Outcome, rep.Problem)
		}
		if g := only(t, w.agents[hop[1]]); len(g.Addresses) != 1 || g.Addresses[0].Prefix != addr || g.Addresses[0].Home != "montreal" {
			t.Errorf("on %s: %+v; want %s alone, whose home is montreal", hop[1], g.Addresses, addr)
		}
		p.haveTunnels(hop[1], map[string]map[string]int{
			"sanjose": {"montreal": 1, "sanjose": 1, "oslo": 0}, "oslo": {"montreal": 1, "sanjose": 0, "oslo": 1}, "montreal": {},
		}[hop[1]])
	}
	time.Sleep(time.Second) // of ticks from home
	for _, flow := range flows {
		r, err := w.clients["phone"].Stop(flow.Name)
		p.must(err)
		t.Logf("%s: of %d records %d lost", flow.Name, r.Records, r.Lost)
		if !r.Survived || r.Records == 0 || r.Repeated+r.Corrupt != 0 || r.Lost != 0 {
			t.Errorf("%s: survived %v; of %d records %d lost, %d repeated, %d corrupt", flow.Name, r.Survived, r.Records, r.Lost, r.Repeated, r.Corrupt)
		}
	}
}

// haveTunnels waits until each host has so many tunnels, with the guest at a host.
func (p *trial) haveTunnels(at string, want map[string]int) {
	p.Helper()
	for until := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		wrong := 0
		for host := range p.w.agents {
			if p.tunnels(host) != want[host] {
				wrong++
			}
		}
		if wrong == 0 {
			return
		}
		if time.Now().After(until) {
			p.Fatalf("with the guest on %s montreal has %d tunnels, sanjose %d, oslo %d; want %v", at, p.tunnels("montreal"), p.tunnels("sanjose"), p.tunnels("oslo"), want)
		}
	}
}
