package lab

import (
	"encoding/hex"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/ndp"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

const slaacWorld = `
name: slaac
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: desk, at: internet}
guests:
  - {name: web, site: montreal, memory: 160MiB}
`

// routersGrant is for how long the routers of both sites are routers and their prefixes of use: far
// shorter than anywhere, so that a test may outlast it, and longer than what agents leave between two
// times that they say it (netstate.Advertisement.Every).
const routersGrant = 15 * time.Second

// TestSLAACGuest moves a guest that has its IPv6 default route from its router's advertisements, and keeps
// its address. While it is away its router's word does not run out, also when the agent there was started
// anew, and the routers there are nobody to it; plain TCP over IPv6 goes on. Nothing of this stays
// when it is home again.
func TestSLAACGuest(t *testing.T) {
	p := newTrial(t, slaacWorld, func(string, *config.Config) {})
	home, _ := p.advertises("montreal", "fd00:1:1::"), p.advertises("sanjose", "fd00:2:1::")
	info, err := p.guest("montreal", "web")
	p.must(err)
	at := "montreal"
	in := func(command string) string {
		t.Helper()
		var out guest.Executed
		p.must(p.w.agents[at].client.CallGuest(t.Context(), "web", "exec", guest.Exec{Command: command}, &out))
		return out.Stdout
	}
	old := info.Addresses[slices.IndexFunc(info.Addresses, func(a migration.Address) bool { return a.Prefix.Addr().Is6() })].Prefix
	in("cd /proc/sys/net/ipv6/conf/eth0; echo 1 > disable_ipv6; echo 1 > accept_ra; echo 0 > disable_ipv6; ip -6 addr add " + old.String() + " dev eth0") // no route is left but what it is told
	p.soon("it has its default route from its router", func() bool { return strings.Join(gatewaysIn(in("cat /proc/net/ipv6_route")), " ") == home.String() })
	go func() {
		for range p.w.clients["desk"].Samples() { //nolint:revive // nobody else reads them
		}
	}()
	p.must(p.w.clients["desk"].Start(traffic.Flow{Name: "v6", Kind: traffic.Ticks, Target: old.Addr()}))

	move := func(from, to string) {
		t.Helper()
		p.from = from
		if rep := p.ends(p.began(migration.Request{Guest: "web", To: to, Network: "tunnel", Downtime: 5 * time.Second}), 2*time.Minute); rep.Outcome != migration.Completed {
			t.Fatalf("%s: %+v, %v", rep.Outcome, rep.Problem, rep.Notes)
		}
		at = to
	}
	move("montreal", "sanjose")
	for half := range 2 {
		time.Sleep(routersGrant * 2 / 3)
		if got := strings.Join(gatewaysIn(in("cat /proc/net/ipv6_route")), " "); got != home.String() {
			t.Errorf("away, its default routes lead to %q, want %s alone", got, home)
		}
		if got := in("ip -6 route get fd18::1 2>&1"); !strings.Contains(got, "via "+home.String()) { // one that ran out is listed for a while
			t.Errorf("away, packets for others go %q, want by %s", got, home)
		}
		got := in("cat /proc/net/if_inet6")
		own := slices.IndexFunc(strings.Split(got, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "fd00000100010000505400fffe") && !strings.Contains(line, " 40 00 20 ") // IFA_F_DEPRECATED
		})
		if own < 0 || strings.Contains(got, "fd0000020001") {
			t.Errorf("away, its addresses are %s, want its own, to be preferred, and none of there", got)
		}
		if half == 0 {
			p.restart("sanjose", nil)
		}
	}
	move("sanjose", "montreal")
	p.soon("nothing of it is left", func() bool {
		var rules []byte
		p.must(netns.Do(p.w.agents["sanjose"].host.Namespace, func() (err error) {
			rules, err = exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
			return err
		}))
		return !strings.Contains(string(rules), "godwit")
	})
	r, err := p.w.clients["desk"].Stop("v6")
	p.must(err)
	if gap, _ := r.Gap(r.Start, r.End); !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 || gap > 5*time.Second {
		t.Errorf("survived %v, %d lost, %d repeated, %d corrupt, gap %v", r.Survived, r.Lost, r.Repeated, r.Corrupt, gap)
	}
	if got := strings.Join(gatewaysIn(in("cat /proc/net/ipv6_route")), " "); got != home.String() {
		t.Errorf("at home again, its default routes lead to %q, want %s alone", got, home)
	}
}

// soon waits for what must become true.
func (p *trial) soon(what string, is func() bool) {
	p.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("not within 20 s: %s", what)
		}
	}
}

// advertises has a site's router speak to its LAN every other second, until the test ends, and says by
// which address.
func (p *trial) advertises(site, prefix string) netip.Addr {
	p.Helper()
	var conn *ndp.Conn
	var from netip.Addr
	p.must(netns.Do(p.w.topo.EdgeDevices()[site].Namespace, func() error {
		ifi, err := net.InterfaceByName("lan")
		if err == nil {
			conn, from, err = ndp.Listen(ifi, ndp.LinkLocal)
		}
		return err
	}))
	p.Cleanup(func() { conn.Close() })
	go func() {
		for p.Context().Err() == nil {
			_ = conn.WriteTo(&ndp.RouterAdvertisement{RouterLifetime: routersGrant, Options: []ndp.Option{&ndp.PrefixInformation{
				PrefixLength: 64, OnLink: true, AutonomousAddressConfiguration: true, ValidLifetime: 2 * routersGrant, PreferredLifetime: routersGrant,
				Prefix: netip.MustParseAddr(prefix),
			}}}, nil, netip.IPv6LinkLocalAllNodes())
			time.Sleep(2 * time.Second)
		}
	}()
	return from.WithZone("")
}

// gatewaysIn are those of the default routes in /proc/net/ipv6_route.
func gatewaysIn(routes string) []string {
	var out []string
	for line := range strings.Lines(routes) {
		f := strings.Fields(line)
		if len(f) < 10 || strings.Trim(f[0], "0") != "" || f[1] != "00" || f[9] == "lo" {
			continue
		}
		b, err := hex.DecodeString(f[4])
		if addr, ok := netip.AddrFromSlice(b); err == nil && ok {
			out = append(out, addr.String())
		}
	}
	return out
}
