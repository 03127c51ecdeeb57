package lab

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/lab/traffic"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

const networksWorld = `
name: networks
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}, {name: private, rate: 100mbit, delay: 3ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}, {name: private, rate: 100mbit, delay: 3ms}]}
  - {name: oslo, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}, {name: private, rate: 100mbit, delay: 3ms}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 128MiB, run: ["dirty size=16MiB"]}
`

// TestEachTransferAndNetwork moves a guest by each transfer that has no test of its own, with a client
// that speaks MPTCP and one that does not. By network drain its address changes, and what was open ends
// its life through the tunnel, which stands again where its process is killed; by tunnel the guest keeps
// its address, also on a third site, and by auto at home again. A lease ends when the configuration says. Nobody on the
// way reads the guest's memory.
func TestEachTransferAndNetwork(t *testing.T) {
	p := newTrial(t, networksWorld, func(host string, c *config.Config) {
		if c.Lease = time.Hour; host == "oslo" {
			c.Lease = shortLease
		}
	})
	p.listens("phone", "desk")
	wire := p.taps("montreal")
	p.drains()
	p.keepsItsAddress()
	p.leaseEnds()
	wire.heard("each transfer", false)
}

// transferred moves web by a transfer and a network, and checks what is told of that.
func (p *trial) transferred(from, to, transfer, network string) record.Report {
	p.Helper()
	return p.transferredBy("auto", from, to, transfer, network)
}

// transferredBy is transferred with a kind of tunnel.
func (p *trial) transferredBy(kind, from, to, transfer, network string) record.Report {
	p.Helper()
	p.from = from
	req := migration.Request{Guest: "web", To: to, Transfer: transfer, Network: network, TunnelKind: kind, Downtime: 2 * time.Second}
	rep := p.ends(p.began(req), 60*time.Second)
	name := transfer + " to " + to
	if rep.Outcome != migration.Completed || rep.Problem != nil {
		p.Fatalf("%s: %s, %v", name, rep.Outcome, rep.Problem)
	}
	var bytes int64
	for _, n := range rep.WireBytes {
		bytes += n
	}
	if network == "auto" {
		network = "tunnel" // it goes home
	}
	if rep.Transfer != transfer || rep.Network != network || rep.Mode != "precopy" || bytes < 16<<20 || (rep.DataPath != nil) != (transfer == "mptcp") {
		p.Errorf("%s: reported are %s, %s, %s, %d bytes, data path %+v", name, rep.Transfer, rep.Network, rep.Mode, bytes, rep.DataPath)
	}
	return rep
}

// begin starts ticks of both clients to an address of the guest, with and without MPTCP.
func (p *trial) begin(called string, to netip.Addr) (flows []string) {
	p.Helper()
	for _, client := range []string{"phone", "desk"} {
		f := traffic.Flow{Name: client + " " + called, Kind: traffic.Ticks, Target: to, MPTCP: client == "phone"}
		p.must(p.w.clients[client].Start(f))
		flows = append(flows, f.Name)
	}
	return flows
}

// over ends flows, of which nothing may have been lost. They moved to another address, or none did.
func (p *trial) over(flows []string, moved bool) {
	p.Helper()
	for _, name := range flows {
		client, _, _ := strings.Cut(name, " ")
		r, err := p.w.clients[client].Stop(name)
		p.must(err)
		gap, _ := r.Gap(r.Start, r.End)
		if !r.Survived || r.Lost+r.Repeated+r.Corrupt != 0 || r.MPTCP != r.Flow.MPTCP || r.Connections[0].Moved != (moved && r.MPTCP) || gap > 10*time.Second {
			p.Errorf("%s: survived %v, lost %d, repeated %d, corrupt %d, MPTCP %v, moved %v, gap %v\n%s",
				name, r.Survived, r.Lost, r.Repeated, r.Corrupt, r.MPTCP, r.Connections[0].Moved, gap, p.missing(&r))
		}
	}
}

// addresses are those of web on a host, the one that it answers by first.
func (p *trial) addresses(host string) (out []netip.Addr) {
	p.Helper()
	g, err := p.guest(host, "web")
	p.must(err)
	for _, a := range g.Addresses {
		out = append(out, a.Prefix.Addr())
	}
	return out
}

// drains: the address changes, and old connections end their life through the tunnel.
func (p *trial) drains() {
	p.Helper()
	old := p.addresses("montreal")[0]
	flows := p.begin("old", old)
	rep := p.transferred("montreal", "sanjose", "mptcp", "drain")
	p.lives("drained", flows)
	now := p.addresses("sanjose")
	if len(now) != 2 || now[0] != rep.Next[0].Prefix.Addr() || !netip.MustParsePrefix("10.2.1.0/24").Contains(now[0]) || now[1] != old {
		p.Errorf("drained: the guest has %v, want a next address and %s", now, old)
	}
	p.fates(rep, map[string]string{"phone mptcp": "tunnelled: it was left on its old address", "desk tcp": "tunnelled: plain TCP cannot change its address"})
	for _, host := range []string{"sanjose", "montreal"} {
		p.tunnelKilled(host, flows)
	}
	p.over(flows, false)
	p.soon("its tunnel is gone, as nobody uses the old address", func() bool { return p.tunnels("sanjose")+p.tunnels("montreal") == 0 })
	if now := p.addresses("sanjose"); len(now) != 1 {
		p.Errorf("drained, and nobody there any more: the guest has %v", now)
	}
}

// tunnelKilled kills the process of a host's only tunnel, which is leased: it stands again, and what uses
// it goes on.
func (p *trial) tunnelKilled(host string, flows []string) {
	p.Helper()
	h := p.w.agents[host]
	look := func() (found []tunnel.Status) {
		p.must(netns.Do(h.host.Namespace, func() (err error) {
			found, err = tunnel.Found(p.Context(), filepath.Join(h.config.Run, "tunnels"))
			return err
		}))
		return found
	}
	before := look()
	if len(before) != 1 || !before[0].Alive {
		p.Fatalf("tunnels of %s: %+v", host, before)
	}
	killed := time.Now()
	p.must(syscall.Kill(before[0].PID, syscall.SIGKILL))
	p.soon("the tunnel of "+host+" stands again", func() bool {
		now := look()
		return len(now) == 1 && now[0].Alive && now[0].PID != before[0].PID
	})
	p.lives("the tunnel of "+host+" was killed", flows)
	if took := time.Since(killed); took > tunnelBack || p.tunnels(host) != 1 {
		p.Errorf("the tunnel of %s was killed: its connections went on after %v, want %v at most; %d stand", host, took, tunnelBack, p.tunnels(host))
	}
}

// tunnelBack is how long connections may wait for a tunnel whose process was killed: agents look each
// second, and TCP sends again later and later meanwhile.
const tunnelBack = 5 * time.Second

// keepsItsAddress: the address is kept and its traffic tunnelled for good, on a third site and at home again,
// by VXLAN on the one way, whose tunnel is another on the next.
func (p *trial) keepsItsAddress() {
	p.Helper()
	own := p.addresses("sanjose")
	flows := p.begin("kept", own[0])
	from := "sanjose"
	const kept = "tunnelled: the guest keeps its address"
	for _, c := range []struct{ to, transfer, kind, network, fate string }{
		{"oslo", "qemu-tcp", "vxlan", "tunnel", kept}, {"montreal", "qemu-multifd", "auto", "tunnel", kept},
		{"sanjose", "qemu-xbzrle", "auto", "auto", kept + ", which is at home there: no tunnel"},
	} {
		rep := p.transferredBy(c.kind, from, c.to, c.transfer, c.network)
		p.lives("on "+c.to, flows)
		if now := p.addresses(c.to); !slices.Equal(now, own) {
			p.Errorf("on %s it has %v, want %v as before", c.to, now, own)
		}
		p.fates(rep, map[string]string{"phone mptcp": c.fate, "desk tcp": c.fate})
		if from = c.to; c.to == "sanjose" {
			continue // at home it may stand, and carries nothing
		}
		for host := range p.w.agents {
			want := 0
			if host == "sanjose" || host == c.to { // its home, and where it is
				want = 1
			}
			p.hasTunnels("it is on "+c.to, host, want)
			p.tunnelIs(c.kind, host)
		}
	}
	for _, host := range []string{"montreal", "oslo"} {
		p.hasTunnels("it is home again", host, 0)
		if left := p.inventory()[host]; slices.ContainsFunc(left, func(what string) bool { return strings.HasPrefix(what, "network state") }) {
			p.Errorf("it is home again, and on %s is left: %q", host, left)
		}
	}
	p.over(flows, false)
}

// shortLease is oslo's.
const shortLease = 4 * time.Second

// leaseEnds: a tunnel that plain TCP uses lives on for as long as the configuration of the guest's new
// host says, and ends then at both ends, also where its home would have given it longer.
func (p *trial) leaseEnds() {
	p.Helper()
	flows := p.begin("leased", p.addresses("sanjose")[0])
	p.transferred("sanjose", "oslo", "mptcp", "mptcp")
	ended := time.Now()
	for p.tunnels("oslo") > 0 {
		switch after := time.Since(ended); {
		case after > 2*shortLease:
			p.Fatalf("a tunnel stands %v after the move", after)
		case p.latest(flows[1]).Alive != 1:
			p.Fatalf("the connection was lost %v after the move", after)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if after := time.Since(ended); after < shortLease/2 {
		p.Errorf("the tunnel ended %v after the move", after)
	}
	for until := time.Now().Add(10 * time.Second); p.tunnels("sanjose") > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			p.Fatal("its end at the guest's home stands for longer")
		}
	}
	p.over(flows[:1], true)
}

// tunnelIs checks that a host's tunnel, if it has one, is by VXLAN where that was asked for, and only there.
func (p *trial) tunnelIs(kind, host string) {
	p.Helper()
	devices := p.in(p.w.agents[host].host.Namespace, "ip", "-o", "link", "show", "type", "vxlan")
	want := kind == "vxlan" && p.tunnels(host) > 0
	if want != strings.Contains(devices, "gwt-") {
		p.Errorf("%s was asked for, and by VXLAN are on %s: %q", kind, host, devices)
	}
}

// hasTunnels waits until a host has so many.
func (p *trial) hasTunnels(when, host string, want int) {
	p.Helper()
	for until := time.Now().Add(20 * time.Second); p.tunnels(host) != want; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			p.Fatalf("%s: %s has not %d tunnels: %q", when, host, want, p.inventory()[host])
		}
	}
}

// tunnels is how many a host has.
func (p *trial) tunnels(host string) (n int) {
	p.Helper()
	for _, what := range p.inventory()[host] {
		if strings.HasPrefix(what, "device gwt-") {
			n++
		}
	}
	return n
}
