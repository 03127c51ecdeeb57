package lab

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// Before sanjose stands a 1:1 NAT: clients see publicNet in its guests' place, and have no way to those.
const natWorld = `
name: nat
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet}
  - {name: tablet, at: internet}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

const (
	publicNet = "203.0.113.0/24"
	edgeRules = `table ip edge {
	chain in { type nat hook prerouting priority -100; ip daddr 203.0.113.0/24 dnat ip prefix to ip daddr map { 203.0.113.0/24 : 10.2.1.0/24 }; }
	chain out { type nat hook postrouting priority 100; oifname "up0" ip saddr 10.2.1.0/24 snat ip prefix to ip saddr map { 10.2.1.0/24 : 203.0.113.0/24 }; }
}`
)

// TestNextAddressBehindNAT: connections follow a guest to an address behind a 1:1 NAT, which they see as
// that NAT shows it, and back; the name of it that others use is told in check. Then they cannot.
func TestNextAddressBehindNAT(t *testing.T) {
	p := newTrial(t, natWorld, func(host string, c *config.Config) {
		if host == "sanjose" {
			c.Network.Public4 = netip.MustParsePrefix(publicNet)
		}
	})
	p.oneToOne("sanjose")
	p.ticks("phone", "web")
	plan, err := p.leader().Plan(t.Context(), migration.Request{Guest: "web", To: "sanjose"})
	p.must(err)
	seen := plan.Next[0].Public
	if !netip.MustParsePrefix(publicNet).Contains(seen) {
		t.Fatalf("next address %+v", plan.Next[0])
	}
	rep := p.ends(p.began(migration.Request{Guest: "web", To: "sanjose"}), time.Minute)
	if rep.Outcome != migration.Completed || rep.Network != "mptcp" {
		t.Fatalf("%s by %s: %+v, %v", rep.Outcome, rep.Network, rep.Problem, rep.Notes)
	}
	p.fates(rep, map[string]string{"phone mptcp": "moved: "})
	p.joins("phone", rep.Next[0].Public)
	p.must(p.w.clients["phone"].Start(traffic.Flow{Name: "late", Kind: traffic.Ticks, Target: rep.Next[0].Public, MPTCP: true}))

	p.from = "sanjose"
	back := p.ends(p.began(migration.Request{Guest: "web", To: "montreal"}), time.Minute)
	if back.Outcome != migration.Completed || back.Next[0].Public.IsValid() {
		t.Fatalf("%s to %+v: %+v, %v", back.Outcome, back.Next, back.Problem, back.Notes)
	}
	p.joins("phone", back.Next[0].Prefix.Addr())
	time.Sleep(time.Second) // of ticks from there
	for _, flow := range []string{"ticks", "late"} {
		r, err := p.w.clients["phone"].Stop(flow)
		p.must(err)
		away := flow == "late" // the other ends where it began
		if !r.Survived || !r.MPTCP || r.Connections[0].Moved != away || r.Lost+r.Repeated+r.Corrupt != 0 {
			t.Errorf("%s: survived %v, moved %v to %v, lost %d, repeated %d, corrupt %d",
				flow, r.Survived, r.Connections[0].Moved, r.Connections[0].Remotes, r.Lost, r.Repeated, r.Corrupt)
		}
	}
	p.destinationWithoutMPTCP()
}

// destinationWithoutMPTCP moves web to a site whose firewall, alone of all, drops the packets of one client that have
// MPTCP's options, and strips them from another's: the report says that they did not come, they stay on the old address
// and lose nothing, also on the way home, and who speaks plain TCP reaches the next one.
func (p *trial) destinationWithoutMPTCP() {
	p.Helper()
	p.in("gw"+p.w.id+"-r-sanjose", "nft", fmt.Sprintf(`table ip nomptcp { chain c { type filter hook forward priority 0;
		ip saddr %[1]s tcp option mptcp exists drop; ip daddr %[1]s tcp option mptcp exists drop;
		ip saddr %[2]s reset tcp option mptcp; ip daddr %[2]s reset tcp option mptcp; }; }`, p.addr("phone"), p.addr("tablet")))
	kept := []string{"phone kept", "tablet kept"}
	for _, name := range kept {
		client, _, _ := strings.Cut(name, " ")
		p.must(p.w.clients[client].Start(traffic.Flow{Name: name, Kind: traffic.Ticks, Target: p.addresses("montreal")[0], MPTCP: true}))
	}
	p.from = ""
	rep := p.ends(p.began(migration.Request{Guest: "web", To: "sanjose"}), time.Minute)
	if rep.Outcome != migration.Completed || rep.Network != "mptcp" {
		p.Fatalf("%s by %s: %+v, %v", rep.Outcome, rep.Network, rep.Problem, rep.Notes)
	}
	stays := "tunnelled: " + guest.WhyUnjoined(limits.UnableAfter)
	p.fates(rep, map[string]string{"phone mptcp": stays, "tablet mptcp": stays})
	p.must(p.w.clients["desk"].Start(traffic.Flow{Name: "desk new", Kind: traffic.Ticks, Target: rep.Next[0].Public}))
	p.from = "sanjose"
	p.is("home again", p.ends(p.began(migration.Request{Guest: "web", To: "montreal"}), time.Minute).Outcome, migration.Completed)
	p.over(kept, true) // to the next address there
	p.over([]string{"desk new"}, false)
}

// oneToOne puts the NAT before a site, and has the internet lead to what that shows in place of the guests'
// own subnet.
func (p *trial) oneToOne(site string) {
	p.Helper()
	core := p.w.topo.Core()
	way := strings.Fields(p.in(core, "ip", "route", "show", "10.2.1.0/24")) // 10.2.1.0/24 dev …
	if len(way) < 3 {
		p.Fatalf("the internet's way to %s is %q", site, way)
	}
	p.in(core, "ip", "route", "del", "10.2.1.0/24")
	p.in(core, "ip", "route", "add", publicNet, "dev", way[2])
	p.in("gw"+p.w.id+"-r-"+site, "nft", edgeRules)
}

// in runs a program in a namespace.
func (p *trial) in(namespace, program string, args ...string) (out string) {
	p.Helper()
	p.must(netns.Do(namespace, func() error {
		said, err := exec.Command(program, args...).CombinedOutput()
		if out = string(said); err != nil {
			return fmt.Errorf("%s %q: %w: %s", program, args, err, out)
		}
		return nil
	}))
	return out
}
