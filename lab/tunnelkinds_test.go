package lab

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

// kindsWorld has two sites, with what is added to the guests' networks and the uplinks of each, and a guest.
func kindsWorld(networks [2]string, uplink string) string {
	return fmt.Sprintf(`
name: kinds
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24%s}, uplinks: [{name: public, rate: 200mbit, delay: 2ms%s}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24%s}, uplinks: [{name: public, rate: 200mbit, delay: 2ms%s}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 112MiB}
`, networks[0], uplink, networks[1], uplink)
}

// TestByEachTunnel moves a guest to and fro, each time by another kind of tunnel that this kernel has: plain TCP and
// UDP to the addresses that it leaves, in both families, go on by it, and MPTCP follows. A kind that it lacks is refused:
// those are moved by in lab/kerneltest, where there are all.
func TestByEachTunnel(t *testing.T) {
	movesByEach(t, kindsWorld([2]string{`, v6: "fd00:1:1::/64"`, `, v6: "fd00:2:1::/64"`}, ""), tunnel.WireGuard, tunnel.VXLAN, tunnel.GRE)
}

// TestByIPIP is TestByEachTunnel for the kind that carries IPv4 alone, in one piece, where there is that.
func TestByIPIP(t *testing.T) {
	need.Root(t)
	var lacks *tunnel.Unsupported
	if err := netns.Once(func() error { return tunnel.Supported(tunnel.IPIP, false) }); errors.As(err, &lacks) {
		t.Skip(err) // lab/kerneltest has a kernel that does not lack it
	}
	movesByEach(t, kindsWorld([2]string{}, ", mtu: 1600"), tunnel.IPIP)
}

func movesByEach(t *testing.T, world string, kinds ...string) {
	p := newTrial(t, world, func(string, *config.Config) {})
	p.listens("phone", "desk")
	p.from = "montreal"
	to := "sanjose"
	for _, kind := range kinds {
		lacks := netns.Do(p.w.agents[p.from].host.Namespace, func() error { return tunnel.Supported(kind, false) })
		if lacks != nil {
			_, err := p.outcome(migration.Request{Guest: "web", To: to, TunnelKind: kind})
			p.said("by "+kind, err, migration.CodePath, "its kernel has no "+kind+" tunnels")
			continue
		}
		t.Run(kind, func(t *testing.T) {
			defer func(whole *testing.T) { p.T = whole }(p.T)
			p.T = t
			p.movesBy(kind, to)
			p.from, to = to, p.from
		})
	}
}

// movesBy moves web by a kind of tunnel.
func (p *trial) movesBy(kind, to string) {
	p.Helper()
	from := p.from
	var plain, all []string
	for _, addr := range p.addresses(from) {
		for _, f := range []traffic.Flow{{Kind: traffic.Ticks}, {Kind: traffic.Download, Rate: 2e6}, {Kind: traffic.Upload, Rate: 2e6}, {Kind: traffic.UDP, Every: 50 * time.Millisecond}} {
			f.Name, f.Target = "desk "+kind+" "+f.Kind+" "+addr.String(), addr
			p.must(p.w.clients["desk"].Start(f))
			plain = append(plain, f.Name)
		}
	}
	all = append(all, plain...)
	follows := traffic.Flow{Name: "phone " + kind, Kind: traffic.Ticks, Target: p.addresses(from)[0], MPTCP: true}
	p.must(p.w.clients["phone"].Start(follows))
	all = append(all, follows.Name)
	p.lives("before "+kind, all)
	rep := p.ends(p.began(migration.Request{Guest: "web", To: to, TunnelKind: kind}), 120*time.Second)
	if rep.Outcome != migration.Completed {
		p.Fatalf("by %s: %s, %v", kind, rep.Outcome, rep.Problem)
	}
	p.lives("by "+kind, all)
	for _, h := range []string{from, to} {
		if devices := p.in(p.w.agents[h].host.Namespace, "ip", "-o", "-d", "link", "show"); !tunnelOf(devices, kind) {
			p.Errorf("by %s: no such tunnel is on %s:\n%s", kind, h, devices)
		}
	}
	p.over(plain, false)
	p.over(all[len(plain):], true)
}

// tunnelOf says whether a tunnel of that kind is among devices, as `ip -o -d link` shows them: a WireGuard of user
// space is a TUN device.
func tunnelOf(devices, kind string) bool {
	for line := range strings.Lines(devices) {
		if _, rest, ok := strings.Cut(line, "gwt-"); ok &&
			(strings.Contains(rest, " "+kind+" ") || kind == tunnel.WireGuard && strings.Contains(rest, " tun ")) {
			return true
		}
	}
	return false
}
