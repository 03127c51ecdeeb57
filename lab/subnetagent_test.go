package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// The queues hold more than a lane's slow start sends too much: a full one of a link would drop the
// flows' datagrams too.
const subnetWorld = `
name: subnet agent
sites:
  - name: montreal
    guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}
    hosts: 3
    subnet_agent: montreal-3
    uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}, uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]}
  - {name: oslo, guest_net: {v4: 10.3.1.0/24, v6: fd00:3:1::/64}, uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal-1, memory: 112MiB}
  - {name: db, site: montreal-2, memory: 112MiB}
`

// routerPorts are the ports of a site's router towards host number h of it, with one uplink.
var routerPorts = map[string][]string{"montreal-1": {"h1u0", "lan1"}, "montreal-2": {"h2u0", "lan2"}, "montreal-3": {"h3u0", "lan3"}}

func (p *trial) inRouter(do func() error) {
	p.Helper()
	p.must(netns.Do("gw"+p.w.id+"-r-montreal", do))
}

// powerOff switches a host off: all that runs on it ends, and its cables are dead.
func (p *trial) powerOff(host string) {
	p.Helper()
	p.inRouter(func() error { return setPorts(host, netlink.LinkSetDown) })
	p.must(p.w.agents[host].reboot())
}

// powerOn boots it.
func (p *trial) powerOn(host string) {
	p.Helper()
	p.inRouter(func() error { return setPorts(host, netlink.LinkSetUp) })
	p.must(p.w.agents[host].start(p.Context()))
}

func setPorts(host string, set func(netlink.Link) error) error {
	for _, name := range routerPorts[host] {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := set(link); err != nil {
			return err
		}
	}
	return nil
}

// forgetNeighbours has the site's router ask anew who has the guests' addresses.
func (p *trial) forgetNeighbours() {
	p.Helper()
	p.inRouter(func() error {
		lan, err := netlink.LinkByName("lan")
		if err != nil {
			return err
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.NeighList(lan.Attrs().Index, family)
			if err != nil {
				return err
			}
			for _, n := range all {
				if n.IP.IsGlobalUnicast() {
					if err := netlink.NeighDel(&n); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// moves has guests leave their hosts at the same time, and returns what was noted.
func (p *trial) moves(to string, guests map[string]string) []string {
	p.Helper()
	ids, notes := map[string]string{}, []string{}
	for guest, from := range guests {
		id, err := p.w.agents[from].client.Migrate(p.Context(), migration.Request{Guest: guest, To: to})
		p.must(err)
		ids[guest] = id
	}
	for guest, from := range guests {
		rep := p.endsOn(from, ids[guest], 90*time.Second)
		if rep.Outcome != migration.Completed {
			p.Fatalf("%s from %s to %s: %s, %v", guest, from, to, rep.Outcome, rep.Problem)
		}
		p.Logf("%s from %s to %s: %q", guest, from, to, rep.Notes)
		notes = append(notes, rep.Notes...)
	}
	return notes
}

// homes checks who stands for the first addresses of a guest that is on host.
func (p *trial) homes(guest, host, want string) {
	p.Helper()
	g, err := p.guest(host, guest)
	p.must(err)
	found := 0
	for _, a := range g.Addresses {
		if slices.Contains(p.first[guest], a.Prefix.Addr()) {
			if found++; a.Home != want {
				p.Errorf("%s on %s: the home of %s is %s, want %s", guest, host, a.Prefix, a.Home, want)
			}
		}
	}
	if found != len(p.first[guest]) {
		p.Errorf("%s on %s: %+v; want all of %v", guest, host, g.Addresses, p.first[guest])
	}
}

// standsFor are the addresses that a host sends away.
func (p *trial) standsFor(host string) (active []netip.Addr) {
	p.Helper()
	p.must(netns.Do(p.w.agents[host].host.Namespace, func() error {
		found, err := netstate.Found()
		for _, s := range found.States {
			for _, a := range s.Away {
				if a.Active {
					active = append(active, a.Addr)
				}
			}
		}
		return err
	}))
	return active
}

// plainFlows begins plain TCP and UDP to the first addresses of guests, by the host that they
// are on.
func (p *trial) plainFlows(called string, at map[string]string) []string {
	p.Helper()
	var names []string
	for guest, host := range at {
		if p.first[guest] == nil {
			g, err := p.guest(host, guest)
			p.must(err)
			for _, a := range g.Addresses {
				p.first[guest] = append(p.first[guest], a.Prefix.Addr())
			}
		}
		for _, addr := range p.first[guest] {
			for _, kind := range []string{traffic.Ticks, traffic.UDP} {
				f := traffic.Flow{Name: called + " " + kind + " " + addr.String(), Kind: kind, Target: addr, Every: 20 * time.Millisecond}
				p.must(p.w.clients["phone"].Start(f))
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// lives checks that each flow still delivers.
func (p *trial) lives(when string, flows []string) {
	p.Helper()
	before := map[string]int64{}
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var bad []string
		for _, name := range flows {
			s := p.latest(name)
			if _, ok := before[name]; !ok && s.Records > 0 {
				before[name] = s.Records
			}
			if s.Alive != s.Connections || s.Records == 0 || s.Records < before[name]+10 {
				bad = append(bad, name)
			}
		}
		if len(bad) == 0 {
			return
		}
		if time.Now().After(until) {
			p.Fatalf("%s: %q deliver no more\n%s", when, bad, p.sockets(bad, before))
		}
	}
}

// lostNothing ends the flows.
func (p *trial) lostNothing(flows []string) {
	p.Helper()
	lost := int64(0)
	for _, name := range flows {
		r, err := p.w.clients["phone"].Stop(name)
		p.must(err)
		if lost += r.Lost; !r.Survived || r.Lost+r.Repeated+r.Corrupt > 0 || r.Records == 0 {
			p.Errorf("%s: survived %v; of %d records %d lost, %d repeated, %d corrupt\n%s", name, r.Survived, r.Records, r.Lost, r.Repeated, r.Corrupt, p.missing(&r))
		}
	}
	if lost > 0 {
		p.Log(p.keptByGuests())
	}
}

// listens keeps what flows said last.
func (p *trial) listens(clients ...string) {
	p.samples, p.first = map[string]traffic.Sample{}, map[string][]netip.Addr{}
	for _, client := range clients {
		go func() {
			for s := range p.w.clients[client].Samples() {
				p.mu.Lock()
				p.samples[s.Flow] = s
				p.mu.Unlock()
			}
		}()
	}
}

func (p *trial) latest(flow string) traffic.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.samples[flow]
}

// TestSubnetAgent: another machine of the subnet stands for the addresses of guests that left two
// hosts, which are switched off: their plain connections go on. Then one moves on, and both come
// home to one host, which is not the one that each left. Nothing is lost on the way.
func TestSubnetAgent(t *testing.T) {
	p := newTrial(t, subnetWorld, func(string, *config.Config) {})
	p.listens("phone")
	flows := p.refusesAtFirst() // web leaves

	p.moves("sanjose", map[string]string{"db": "montreal-2"})
	p.homes("web", "sanjose", "montreal-3")
	p.homes("db", "sanjose", "montreal-3")
	if got := p.standsFor("montreal-3"); len(got) != 4 {
		t.Errorf("montreal-3 stands for %v, want all four", got)
	}
	for _, host := range []string{"montreal-1", "montreal-2"} {
		if got := p.standsFor(host); len(got) > 0 {
			t.Errorf("%s still sends %v", host, got)
		}
		p.powerOff(host)
	}
	p.forgetNeighbours()
	p.lives("both hosts are off", flows)
	p.restart("montreal-3", nil)
	p.lives("the subnet agent was started again", flows)

	p.moves("oslo", map[string]string{"db": "sanjose"})
	p.homes("db", "oslo", "montreal-3")
	p.lives("one has moved on", flows)

	p.powerOn("montreal-1")
	p.comesHome(map[string]string{"web": "sanjose"}, 2)
	p.comesHome(map[string]string{"db": "oslo"}, 0)
	p.forgetNeighbours()
	p.lives("at home again", flows)
	p.lostNothing(flows)
}

// comesHome has guests come to montreal-1, and its subnet agent stand for stay addresses then.
func (p *trial) comesHome(guests map[string]string, stay int) {
	p.Helper()
	p.moves("montreal-1", guests)
	for guest := range guests {
		p.homes(guest, "montreal-1", "montreal-1")
	}
	if got := p.standsFor("montreal-3"); len(got) != stay {
		p.Errorf("montreal-3 stands for %v, want %d", got, stay)
	}
}

// refusesAtFirst moves a guest away while the subnet agent believes none of its site's hosts:
// that harms nothing, and the host stays the home, until it is asked again. Then it reboots, which
// no connection minds. The flows that it leaves are to go on, and to lose nothing.
func (p *trial) refusesAtFirst() []string {
	p.Helper()
	flows := p.plainFlows("refused", map[string]string{"web": "montreal-1"})
	p.lives("at home", flows)
	var known []config.Neighbour
	p.restart("montreal-3", func(c *config.Config) {
		known = c.Peers
		c.Peers = slices.DeleteFunc(slices.Clone(known), func(n config.Neighbour) bool { return n.Host == "montreal-1" })
	})
	notes := p.moves("sanjose", map[string]string{"web": "montreal-1"})
	if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "montreal-1 stays their home") }) {
		p.Errorf("notes %q", notes)
	}
	p.homes("web", "sanjose", "montreal-1")
	p.lives("the subnet agent refused", flows)

	p.restart("montreal-3", func(c *config.Config) { c.Peers = known })
	p.restart("sanjose", nil) // or it asks again in a minute
	for until := time.Now().Add(20 * time.Second); len(p.standsFor("montreal-1")) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			p.Fatalf("montreal-1 still stands for %v", p.standsFor("montreal-1"))
		}
	}
	p.homes("web", "sanjose", "montreal-3")
	p.lives("it was asked again", flows)

	// An address that nobody uses is given up: each flow begins before others end.
	rebooted := p.plainFlows("rebooted", map[string]string{"web": "sanjose"})
	p.lives("before the reboot", rebooted)
	p.lostNothing(flows)
	p.must(p.w.agents["montreal-3"].reboot())
	p.must(p.w.agents["montreal-3"].start(p.Context()))
	p.lives("the subnet agent has rebooted", rebooted)
	on := p.plainFlows("on", map[string]string{"web": "sanjose", "db": "montreal-2"})
	p.lives("after the reboot", on)
	for _, name := range rebooted {
		_, err := p.w.clients["phone"].Stop(name)
		p.must(err)
	}
	return on
}
