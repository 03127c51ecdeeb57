package lab

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
)

const firewallWorld = `
name: firewall
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

// hostFirewall forwards what begins at the guests' bridge, %BRIDGE, and what belongs to that. It sees
// bridged packets, too, where the kernel shows it those (br_netfilter), such as neighbours' questions.
const hostFirewall = `flush ruleset
table ip filter { chain FORWARD { type filter hook forward priority filter; policy drop; ct state established,related counter accept; iifname %BRIDGE ct state new counter accept; }; }
table inet fw { chain f { type filter hook forward priority 10; policy drop; ct state established,related accept; meta l4proto ipv6-icmp accept; iifname %BRIDGE ct state new accept; }; }`

// TestFirewallsOfHosts: plain TCP and UDP lose nothing on the way there and home through hosts
// whose firewalls forward nothing by default, connections live on where such a firewall is
// loaded anew beside them, and nothing of ours is left in it. A firewall that cannot be opened is
// told in check.
func TestFirewallsOfHosts(t *testing.T) {
	p := newTrial(t, firewallWorld, func(_ string, c *config.Config) { c.Lease = time.Minute })
	p.listens("phone")
	for host := range p.w.agents {
		p.inHost(host, hostFirewall)
	}
	there, all := p.plainFlows("there", map[string]string{"web": "montreal"}), p.plainFlows("all", map[string]string{"web": "montreal"})
	p.lives("at home", append(there, all...))
	p.moves("sanjose", map[string]string{"web": "montreal"})
	p.lives("there", append(there, all...))
	p.lostNothing(there)
	for host := range p.w.agents {
		p.inHost(host, hostFirewall)
	}
	p.lives("after the firewalls were loaded anew", all)
	p.moves("montreal", map[string]string{"web": "sanjose"})
	p.lives("home again", all)
	p.lostNothing(slices.DeleteFunc(all, func(name string) bool { return strings.Contains(name, traffic.UDP) })) // datagrams were lost until the rules were back
	for host := range p.w.agents {
		p.must(p.w.agents[host].client.EndDetours(p.Context()))
	}
	for host := range p.w.agents {
		if rules := p.inHost(host, "list ruleset"); strings.Contains(rules, "godwit") {
			p.Errorf("%s: left in nftables:\n%s", host, rules)
		}
	}
	p.refusesOwned()
}

// refusesOwned sees that a firewall which nobody but its owner may open is told, on either host.
func (p *trial) refusesOwned() {
	p.Helper()
	for host := range p.w.agents {
		owner := exec.Command("nft", "-i")
		in, err := owner.StdinPipe()
		p.must(err)
		p.must(netns.Start(p.w.agents[host].host.Namespace, owner))
		_, err = in.Write([]byte("add table inet own { flags owner; chain f { type filter hook forward priority 0; policy drop; }; }\n"))
		p.must(err)
		for until := time.Now().Add(5 * time.Second); !strings.Contains(p.inHost(host, "list ruleset"), "table inet own"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(until) {
				p.Fatal("nft -i makes no table")
			}
		}
		outcome, err := p.outcome(migration.Request{Guest: "web", To: "sanjose"})
		p.said("a firewall of "+host+" that cannot be opened", err, migration.CodePath, "table inet own, chain f", `accept comment "godwit"`)
		p.is("a firewall of "+host+" that cannot be opened", outcome, migration.Refused)
		p.must(in.Close())
		owner.Wait() //nolint:errcheck // its table goes with it
	}
}

// inHost asks nft of a host; BRIDGE stands for its guests' bridge.
func (p *trial) inHost(host, rules string) string {
	p.Helper()
	h := p.w.agents[host].host
	cmd := exec.Command("nft", strings.ReplaceAll(rules, "%BRIDGE", h.Bridge))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	p.must(netns.Start(h.Namespace, cmd))
	if err := cmd.Wait(); err != nil {
		p.Fatalf("%s: nft %s: %v: %s", host, rules, err, said.String())
	}
	return said.String()
}
