package lab

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/lab/topo"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestInVLAN moves a guest there and back where the guests' network is a VLAN: at one site the port of the host's bridge
// is the wire's sub-interface, at the other the bridge filters, and the wire is its trunk. So each is once the home of
// addresses that take a tunnel, and once where the guest is. MPTCP follows, plain TCP and UDP to the addresses
// that it leaves go on by the tunnel, in both families; nothing is lost, and at the end nothing is left on the hosts.
func TestInVLAN(t *testing.T) {
	need.Root(t)
	if err := topo.VLANs(); err != nil {
		t.Skip(err) // lab/kerneltest has a kernel that does not lack them
	}
	w := &world{vlans: map[string]string{"montreal": topo.PortInVLAN, "sanjose": topo.BridgeFilters}}
	p := newTrialIn(t, w, kindsWorld([2]string{`, v6: "fd00:1:1::/64"`, `, v6: "fd00:2:1::/64"`}, ""), func(string, *config.Config) {})
	p.movesAround([]string{"montreal", "sanjose", "montreal"})
}

// movesAround moves web from host to host, with flows to the addresses that it leaves, and looks at what is left at the end.
func (p *trial) movesAround(hosts []string) {
	p.Helper()
	p.listens("phone", "desk")
	for i, to := range hosts[1:] {
		p.Run("from "+hosts[i], func(t *testing.T) {
			defer func(whole *testing.T) { p.T = whole }(p.T)
			p.T, p.from = t, hosts[i]
			p.movesWithFlows(to)
		})
	}
	for _, a := range p.w.agents {
		p.must(a.client.EndDetours(p.Context()))
	}
	p.nothingLed()
}

// nothingLed sees that no host leads anything of a guest's any more.
func (p *trial) nothingLed() {
	p.Helper()
	for host := range p.w.agents {
		p.hasTunnels("no address takes one", host, 0)
		if left := p.inventory()[host]; slices.ContainsFunc(left, func(what string) bool { return strings.HasPrefix(what, "network state") }) {
			p.Errorf("on %s is left: %q", host, left)
		}
	}
}

// movesWithFlows moves web with flows to the addresses of the site that it leaves, one of each family. They are no more
// than what a guest takes that is emulated by what is emulated itself: with a datagram each 10 ms to both it fell
// behind by seconds, and some were lost then.
func (p *trial) movesWithFlows(to string) {
	p.Helper()
	from := p.addresses(p.from)[:2]
	var plain []string
	for _, addr := range from {
		for _, f := range []traffic.Flow{{Kind: traffic.Ticks, Every: 50 * time.Millisecond}, {Kind: traffic.UDP, Every: 50 * time.Millisecond}} {
			f.Name, f.Target = "desk "+f.Kind+" "+addr.String(), addr
			p.must(p.w.clients["desk"].Start(f))
			plain = append(plain, f.Name)
		}
	}
	follows := traffic.Flow{Name: "phone to " + to, Kind: traffic.Ticks, Target: from[0], MPTCP: true, Every: 50 * time.Millisecond}
	p.must(p.w.clients["phone"].Start(follows))
	all := append(slices.Clone(plain), follows.Name)
	p.lives("before", all)
	rep := p.ends(p.began(migration.Request{Guest: "web", To: to}), 120*time.Second)
	if rep.Outcome != migration.Completed || rep.Network != "mptcp" {
		p.Fatalf("%s by %s: %v, %v", rep.Outcome, rep.Network, rep.Problem, rep.Notes)
	}
	p.lives("on "+to, all)
	if now := p.addresses(to)[:2]; slices.Contains(now, from[0]) || slices.Contains(now, from[1]) {
		p.Errorf("it has %v first, which are the addresses that it left", now)
	}
	p.over(plain, false)
	p.over([]string{follows.Name}, true)
	if p.Failed() {
		p.fullQueues(to)
	}
}

// fullQueues logs what the queues on the way have refused: those of the hosts' devices, and of the sockets of web on a host.
func (p *trial) fullQueues(at string) {
	p.Helper()
	for host, a := range p.w.agents {
		p.Logf("%s:\n%s", host, p.in(a.host.Namespace, "ip", "-s", "link"))
	}
	var said guest.Executed
	err := p.w.agents[at].client.CallGuest(p.Context(), "web", "exec", guest.Exec{Command: "grep Udp /proc/net/snmp /proc/net/snmp6; cat /proc/net/dev"}, &said)
	p.Logf("web: %v\n%s%s", err, said.Stdout, said.Stderr)
}
