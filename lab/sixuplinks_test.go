package lab

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

// By their rates montreal's private uplink has sanjose's public one opposite, and its public one that site's private
// one, none of which meet.
const sixUplinksWorld = `
name: six-uplinks
sites:
  - name: montreal
    guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}
    uplinks: [{name: six, rate: 350mbit, delay: 2ms}, {name: public, carries: both, rate: 100mbit, delay: 2ms}, {name: private, rate: 200mbit, delay: 2ms}]
  - name: sanjose
    guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}
    uplinks: [{name: public, rate: 200mbit, delay: 2ms}, {name: six, carries: both, rate: 350mbit, delay: 2ms}, {name: private, rate: 100mbit, delay: 2ms}]
  - {name: oslo, guest_net: {v4: 10.3.1.0/24, v6: fd00:3:1::/64}, uplinks: [{name: six, rate: 350mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 128MiB, disk: 16MiB, run: ["dirty size=16MiB data=random"]}
`

// sixes gives uplinks that are called six the address by IPv6 that they have in the lab's plan.
func sixes(all []config.Uplink) {
	for i, u := range all {
		if a := u.Address.As4(); u.Name == "six" {
			all[i].Address = netip.MustParseAddr(fmt.Sprintf("fd64:%d:%d::%d", a[1]-64, a[2], a[3]))
		}
	}
}

// TestUplinksByIPv6: a guest moves over uplinks by IPv6, alone and beside some by IPv4, and those of a private network,
// which reach none of the others; each transfer takes all of the pairs that reach each other, and none shows the guest's
// memory. It comes again to where it was, the way that it went and by way of a third site, and its client's connections
// get no more subflows by that.
func TestUplinksByIPv6(t *testing.T) {
	p := newTrial(t, sixUplinksWorld, func(_ string, c *config.Config) {
		sixes(c.Uplinks)
		for _, n := range c.Peers {
			sixes(n.Uplinks)
		}
	})
	p.nft(`table ip apart {
		chain forward {
			type filter hook forward priority 0;
			ip saddr {100.64.2.0/24, 100.65.2.0/24} ip daddr {100.64.1.0/24, 100.65.0.0/24} drop
			ip daddr {100.64.2.0/24, 100.65.2.0/24} ip saddr {100.64.1.0/24, 100.65.0.0/24} drop
		}
	}`)
	own := p.addresses("montreal")[0]
	flows := p.begin("ticks", own)
	p.must(p.w.clients["phone"].Start(traffic.Flow{
		Name: "phone now and then", Kind: traffic.Ticks, Target: own, MPTCP: true, Connections: 4, Every: 500 * time.Millisecond, Silent: true,
	}))
	p.oneSubflowEach("before it moved", "phone", 5, own)
	wire := p.taps("montreal")
	for _, move := range []struct{ from, to, transfer, note string }{
		{"montreal", "sanjose", "lanes", "as nothing is answered over private-public, public-private"},
		{"sanjose", "montreal", "qemu-multifd", "as nothing is answered over public-private, private-public"},
		{"montreal", "sanjose", "qemu-mptcp", "as nothing is answered over private-public, public-private"},
		{"sanjose", "montreal", "mptcp", "as nothing is answered over public-private, private-public"},
		{"montreal", "oslo", "lanes", ""},
		{"oslo", "sanjose", "lanes", ""},
	} {
		p.from = move.from
		rep := p.ends(p.began(migration.Request{Guest: "web", To: move.to, Transfer: move.transfer, Downtime: 2 * time.Second}), 90*time.Second)
		if rep.Outcome != migration.Completed {
			t.Fatalf("%+v: %s, %v", move, rep.Outcome, rep.Problem)
		}
		wire.heard(move.transfer+" to "+move.to, false)
		p.w.moved("web", move.to)
		p.oneSubflowEach(fmt.Sprintf("%+v", move), "phone", 5, rep.Next[0].Prefix.Addr())
		want := []string{"six-six"}
		if move.note != "" {
			want = []string{"private-private", "public-public", "six-six"}
			p.noted(rep, move.note)
		}
		took := maps.Clone(rep.WireBytes)
		maps.DeleteFunc(took, func(_ string, bytes int64) bool { return bytes < 100_000 }) // calls are tried by every pair
		if got := slices.Sorted(maps.Keys(took)); !slices.Equal(got, want) {
			t.Errorf("%+v: memory took %v, want all of %v", move, rep.WireBytes, want)
		}
	}
	p.over(flows, true)
	rare, err := p.w.clients["phone"].Stop("phone now and then")
	p.must(err)
	if !rare.Survived || rare.Lost+rare.Repeated+rare.Corrupt != 0 {
		t.Errorf("now and then: survived %v, lost %d, repeated %d, corrupt %d", rare.Survived, rare.Lost, rare.Repeated, rare.Corrupt)
	}
}

// oneSubflowEach waits until a client has so many MPTCP connections, each with one working subflow from each of its
// addresses of that family, to addr: none is left to where the guest was.
func (p *trial) oneSubflowEach(when, client string, connections int, addr netip.Addr) {
	p.Helper()
	c := p.w.topo.Client(client)
	want := c.Addrs
	if addr.Is6() {
		want = c.AddrsV6
	}
	want = slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var ways [][]string // of each connection
		wrong := 0
		p.must(netns.Do(c.Namespace, func() error {
			all, err := mptcp.Connections()
			for _, c := range all {
				var from []netip.Addr
				var way []string
				for _, s := range c.Subflows {
					if s.State != mptcp.StateEstablished {
						continue
					}
					way = append(way, s.Local.Addr().String()+" > "+s.Remote.Addr().String())
					if s.Remote.Addr() == addr {
						from = append(from, s.Local.Addr())
					}
				}
				slices.SortFunc(from, netip.Addr.Compare)
				if !slices.Equal(from, want) || len(way) != len(want) {
					wrong++
				}
				ways = append(ways, way)
			}
			return err
		}))
		if len(ways) == connections && wrong == 0 {
			return
		}
		if time.Now().After(until) {
			p.Fatalf("%s: the subflows of %s are %q, want %d connections with one from each of %v to %s", when, client, ways, connections, want, addr)
		}
	}
}
