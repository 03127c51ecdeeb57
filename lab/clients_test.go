package lab

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/agent/nameserver"
	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// Clients of every kind. The way of stripped strips MPTCP's options from its packets, that of half from all
// but those that begin a connection, and that of dropped drops packets which have them. own has endpoints of
// its own that aim at a server's first address.
const clientsWorld = `
name: clients
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: full, at: internet}
  - {name: plain, at: internet, mptcp: off}
  - {name: deaf, at: internet, add_addr_accepted: 0}
  - {name: stripped, at: internet}
  - {name: half, at: internet}
  - {name: dropped, at: internet}
  - {name: own, at: internet, uplinks: 2}
  - {name: browser, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB}
`

// atCore is an address of the internet's own, on the first client's network: that of
// the name server.
var atCore = netip.MustParseAddrPort("198.19.0.1:5353")

// TestEveryConnectionIsAccounted moves a guest with a client of each kind, over hosts
// with strict and with loose reverse path filters, past middleboxes that strip or drop
// MPTCP, and looks at what the reports say: before the move, after it, per flow of the
// tunnel, and when the lease ends. The name server is a real BIND.
func TestEveryConnectionIsAccounted(t *testing.T) {
	need.Program(t, "named")
	secret := filepath.Join(t.TempDir(), "key")
	p := newTrial(t, clientsWorld, func(_ string, c *config.Config) {
		c.DNS = &nameserver.Config{Server: atCore.String(), Zone: "example.test", Key: nameserver.Key{Name: "godwit", File: secret}}
	})
	p.bind(secret)
	for host, filter := range map[string]string{"montreal": "1", "sanjose": "2"} {
		p.sysctl(p.w.agents[host].host.Namespace, "ipv4/conf/*/rp_filter", filter)
	}
	p.nft(fmt.Sprintf(`table inet middlebox { chain c { type filter hook forward priority 0;
		ip saddr %s reset tcp option mptcp; ip saddr %s tcp flags & syn == 0 reset tcp option mptcp; ip saddr %s tcp option mptcp exists drop; }; }`,
		p.addr("stripped"), p.addr("half"), p.addr("dropped")))
	p.aimsAtFirst("own")
	info, err := p.guest("montreal", "web")
	p.must(err)
	old := info.Addresses[0].Prefix.Addr()
	start := func(client, kind string) {
		p.must(p.w.clients[client].Start(traffic.Flow{Name: kind, Kind: kind, Target: old, MPTCP: client != "plain"}))
		go func() {
			for range p.w.clients[client].Samples() { //nolint:revive // nobody else reads them
			}
		}()
	}
	tcp := []string{"plain", "stripped", "half", "dropped"}
	for _, client := range append([]string{"full", "deaf", "own"}, tcp...) {
		start(client, traffic.Ticks)
	}
	p.joins("own", old)
	p.must(p.w.clients["plain"].Start(traffic.Flow{Name: "udp", Kind: traffic.UDP, Target: old}))
	p.serveQUIC("browser", "web")
	overQUIC := p.quic("browser", old)
	overQUIC.goesOn(t, "QUIC before the move")

	const mayFollow = "before the move: 3 MPTCP connections can follow where their clients take announced addresses (" + guest.Accepts + "); 4 of plain TCP (no MPTCP, or it was stripped on the way)"
	plan, err := p.leader().Plan(t.Context(), migration.Request{Guest: "web", To: "sanjose"})
	p.must(err)
	p.noted(plan, mayFollow)
	if b := plan.Predicted.Memory; b == nil || b.Content == 0 || b.Content >= b.Bytes || b.Known == 0 || b.Known > b.Content/2 || b.Ratio >= 1 {
		t.Errorf("foreseen of a guest that never was there, whose image is: %+v", b)
	}
	id := p.began(migration.Request{Guest: "web", To: "sanjose", Downtime: 5 * time.Second, Bandwidth: crawl})
	p.reaches(id, "copy")
	rep, err := p.w.agents["montreal"].client.Report(t.Context(), id)
	p.must(err)
	taken := rep.Next[0].Prefix.Addr()
	p.must(netns.Do(p.w.agents["sanjose"].host.Namespace, func() error { // somebody takes it after the check
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: taken.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	}))
	toldHooks := p.hearsNext(migration.HandoverDone)
	time.Sleep(2 * time.Second) // the agent asks each second
	p.must(p.w.agents["montreal"].client.SetBandwidth(t.Context(), id, 0))
	rep = p.ends(id, 2*time.Minute)
	if rep.Outcome != migration.Completed || rep.Network != "mptcp" {
		t.Fatalf("%s by %s: %+v, %v", rep.Outcome, rep.Network, rep.Problem, rep.Notes)
	}
	p.noted(rep, mayFollow)
	next := rep.Next[0].Prefix.Addr()
	if p.noted(rep, "next address "+taken.String()+" was taken"); next == taken {
		t.Errorf("next address %s, which was taken", next)
	}
	toldHooks(next)
	p.noted(rep, "name service: web.example.test. is "+next.String()+" now")
	if got := p.resolve("web.example.test."); got != next.String() {
		t.Errorf("the name server has %q, want %s", got, next)
	}
	p.fates(rep, map[string]string{
		"full mptcp": "moved: ", "deaf mptcp": "tunnelled: " + guest.WhyUnjoined(10*time.Second),
		"own mptcp": "moved: ", "plain tcp": "tunnelled: plain TCP cannot change its address", "stripped tcp": "tunnelled: plain TCP cannot change its address",
		"half tcp": "tunnelled: plain TCP cannot change its address", "dropped tcp": "tunnelled: plain TCP cannot change its address",
		"plain udp": "tunnelled: seen in the tunnel", "browser udp": "tunnelled: seen in the tunnel",
	})
	overQUIC.goesOn(t, "QUIC through the tunnel")
	p.quic("browser", next).goesOn(t, "QUIC to the next address")
	for _, host := range []string{"montreal", "sanjose"} {
		p.inTunnel(host, old, "plain tcp", "plain udp", "deaf tcp", "stripped tcp", "half tcp", "dropped tcp", "browser udp")
	}
	for client, flows := range map[string][]string{"full": {"ticks"}, "own": {"ticks"}, "plain": {"ticks", "udp"}, "deaf": {"ticks"}, "half": {"ticks"}, "dropped": {"ticks"}} {
		for _, flow := range flows { // stripped's goes on past the lease's end
			r, err := p.w.clients[client].Stop(flow)
			p.must(err)
			if !r.Survived || r.Repeated+r.Corrupt > 0 || flow != "udp" && r.Lost > 0 { // datagrams have their own tests
				t.Errorf("%s of %s: survived %v, %d lost, %d repeated, %d corrupt", flow, client, r.Survived, r.Lost, r.Repeated, r.Corrupt)
			}
		}
	}
	overQUIC.stop()
	time.Sleep(3 * time.Second) // the agent looks every second
	p.must(p.w.agents["sanjose"].client.EndDetours(t.Context()))
	rep, err = p.w.agents["montreal"].client.Report(t.Context(), id)
	p.must(err)
	p.fates(rep, map[string]string{
		"full mptcp": "moved: ", "deaf mptcp": "ended: through the tunnel until it ended", "plain tcp": "ended: through the tunnel until it ended",
		"stripped tcp": "lost: the lease of the tunnel ended",
	})
	p.nameRefused(next)
}

// nameRefused: a name server that does not let the next host's key change the name (RFC 2136 §2.2) holds
// up no move; it is told, and the name is as it was.
func (p *trial) nameRefused(was netip.Addr) {
	p.Helper()
	p.restart("montreal", func(c *config.Config) { c.DNS.Key.Name = "reader" })
	p.from = "sanjose"
	rep := p.ends(p.began(migration.Request{Guest: "web", To: "montreal", Downtime: 5 * time.Second}), 2*time.Minute)
	if rep.Outcome != migration.Completed || rep.Problem != nil {
		p.Errorf("with a name server that refuses: %s, %v", rep.Outcome, rep.Problem)
	}
	p.noted(rep, "name service: update web.example.test. at name server "+atCore.String()+": refused (REFUSED): it does not let this key change the name; trying again")
	if got := p.resolve("web.example.test."); got != was.String() {
		p.Errorf("the name server has %q though it refused, want %s", got, was)
	}
}

// aimsAtFirst has a client's endpoints be of those that open subflows to a server's first address alone,
// as most people set them (facts of MPTCP, 7).
func (p *trial) aimsAtFirst(client string) {
	p.Helper()
	p.must(netns.Do(p.w.topo.Client(client).Namespace, func() error {
		all, err := mptcp.Endpoints()
		for _, e := range all {
			err = errors.Join(err, mptcp.DelEndpoint(e.ID, e.Addr), mptcp.AddEndpoint(mptcp.Endpoint{Addr: e.Addr, Dev: e.Dev, Flags: mptcp.FlagSubflow}))
		}
		return err
	}))
}

// joins waits until a client's connection has a working subflow from each of its addresses to addr.
func (p *trial) joins(client string, addr netip.Addr) {
	p.Helper()
	c := p.w.topo.Client(client)
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var from []netip.Addr
		p.must(netns.Do(c.Namespace, func() error {
			all, err := mptcp.Connections()
			for _, s := range all {
				for _, sub := range s.Subflows {
					if sub.State == mptcp.StateEstablished && sub.Remote.Addr() == addr {
						from = append(from, sub.Local.Addr())
					}
				}
			}
			return err
		}))
		if !slices.ContainsFunc(c.Addrs, func(own netip.Addr) bool { return !slices.Contains(from, own) }) {
			return
		}
		if time.Now().After(until) {
			p.Fatalf("%s has subflows to %s from %v, want them from %v", client, addr, from, c.Addrs)
		}
	}
}

// bind runs BIND in the middle of the internet; the key's secret is written to path.
func (p *trial) bind(path string) {
	p.Helper()
	dir := p.T.TempDir()
	secret := base64.StdEncoding.EncodeToString([]byte("a test's secret"))
	p.must(os.WriteFile(path, []byte(secret), 0o600))
	p.must(os.WriteFile(filepath.Join(dir, "zone"), []byte("$TTL 60\n@ IN SOA ns root 1 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\n"), 0o600))
	conf := filepath.Join(dir, "named.conf")
	p.must(os.WriteFile(conf, fmt.Appendf(nil, `key "godwit" { algorithm hmac-sha256; secret %[1]q; };
key "reader" { algorithm hmac-sha256; secret %[1]q; };
options { directory %[2]q; listen-on port %[3]d { %[4]s; }; listen-on-v6 { none; }; pid-file none; session-keyfile none; recursion no; dnssec-validation no; };
controls { };
zone "example.test" { type primary; file "zone"; update-policy { grant godwit subdomain example.test. A AAAA; }; };
`, secret, dir, atCore.Port(), atCore.Addr()), 0o600))
	cmd := exec.Command("named", "-g", "-c", conf, "-n", "1")
	p.must(netns.Start(p.w.topo.Core(), cmd))
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }() //nolint:errcheck // killed
	p.Cleanup(func() { cmd.Process.Kill(); <-ended })
	for end := time.Now().Add(20 * time.Second); p.resolve("ns.example.test.") == ""; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatal("BIND does not answer")
		}
	}
}

// resolve asks the name server for a name's IPv4 addresses.
func (p *trial) resolve(name string) string {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	var out []string
	p.must(netns.Do(p.w.topo.Core(), func() error {
		answer, err := dns.Exchange(m, atCore.String())
		if err != nil {
			return nil //nolint:nilerr // it may not be up yet
		}
		for _, rr := range answer.Answer {
			if a, ok := rr.(*dns.A); ok {
				out = append(out, a.A.String())
			}
		}
		return nil
	}))
	return strings.Join(out, " ")
}

// sysctl writes a value to all files below /proc/sys/net that match.
func (p *trial) sysctl(namespace, pattern, value string) {
	p.Helper()
	p.must(netns.Do(namespace, func() error {
		files, err := filepath.Glob(filepath.Join("/proc/sys/net", pattern))
		for _, f := range files {
			if err := os.WriteFile(f, []byte(value), 0); err != nil {
				return err
			}
		}
		return err
	}))
}

func (p *trial) addr(client string) netip.Addr { return p.w.topo.Client(client).Addrs[0] }

// clientAt is the client with an address.
func (p *trial) clientAt(addr netip.Addr) string {
	for name := range p.w.clients {
		if c := p.w.topo.Client(name); slices.Contains(c.Addrs, addr) || slices.Contains(c.AddrsV6, addr) {
			return name
		}
	}
	return addr.String()
}

func (p *trial) noted(rep record.Report, text string) {
	p.Helper()
	if !slices.ContainsFunc(rep.Notes, func(n string) bool { return strings.Contains(n, text) }) {
		p.Errorf("notes %q: want one with %q", rep.Notes, text)
	}
}

// fates checks the survival report: a connection by client and kind, each with
// what became of it. UDP flows that ended may be gone from a second look.
func (p *trial) fates(rep record.Report, want map[string]string) {
	p.Helper()
	if rep.Survival == nil {
		p.Fatal("no survival report")
	}
	got := map[string]string{}
	for _, c := range rep.Survival.Connections {
		got[p.clientAt(c.Remote.Addr())+" "+c.Kind] = string(c.Fate) + ": " + c.Why
	}
	for key, fate := range want {
		if got[key] != fate {
			p.Errorf("%s: %q, want %q; handed at %d, all: %+v", key, got[key], fate, rep.Handed, rep.Survival.Connections)
		}
	}
	if s := rep.Survival; s.Total != len(s.Connections) || s.Total != s.Moved+s.Tunnelled+s.Ended+s.Lost || s.Unknown != "" {
		p.Errorf("sums do not agree: %+v", s)
	}
}

// inTunnel checks that a host lists these flows of an address: what its agent says
// and what nft shows.
func (p *trial) inTunnel(host string, addr netip.Addr, want ...string) {
	p.Helper()
	all, err := p.w.agents[host].client.Tunnels(p.Context())
	p.must(err)
	var got []string
	for _, use := range all {
		for _, f := range use.Flows {
			if f.Guest.Addr() == addr && f.Packets > 0 {
				got = append(got, p.clientAt(f.Client.Addr())+" "+f.Protocol)
			}
		}
	}
	for _, flow := range want {
		if !slices.Contains(got, flow) {
			p.Errorf("%s: flows %v, want %s among them", host, got, flow)
		}
	}
	p.must(netns.Do(p.w.agents[host].host.Namespace, func() error {
		flows, err := netstate.Flows("web")
		if len(flows) < len(want) {
			p.Errorf("%s: the kernel lists %d flows, want %d", host, len(flows), len(want))
		}
		return err
	}))
}
