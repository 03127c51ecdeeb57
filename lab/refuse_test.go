package lab

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/agent/evacuate"
	"godwit/agent/peer"
	"godwit/lab/scenario"
	"godwit/lab/wan"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/policy"
	"godwit/vm/guest"
)

// Three sites. The way to lisbon is narrow: full packets pass in fragments only.
const refuseWorld = `
name: refuse
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - name: sanjose
    guest_net: {v4: 10.2.1.0/24}
    uplinks: [{name: public, rate: 200mbit, delay: 2ms}, {name: private, rate: 100mbit, delay: 3ms}]
  - {name: lisbon, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: public, rate: 200mbit, delay: 2ms, mtu: 1400}]}
clients:
  - {name: phone, at: montreal}
guests:
  - {name: web, site: montreal, memory: 192MiB, run: ["dirty size=40MiB"]}
  - {name: db, site: montreal, memory: 192MiB, run: ["dirty size=40MiB"]}
  - {name: mail, site: montreal, memory: 192MiB, run: ["dirty size=40MiB"]}
  - {name: cache, site: montreal, memory: 192MiB, run: ["dirty size=40MiB"]}
`

// crawl is a bandwidth (bit/s) at which a copy of these guests takes some ten seconds.
const crawl = 32_000_000

// TestNothingChanged is the table of what is refused and what is undone: each says
// why in one line, and leaves guest, clients and hosts as they were. The guest can
// move afterwards.
func TestNothingChanged(t *testing.T) {
	exactly(t)
	p := newTrial(t, refuseWorld, func(host string, c *config.Config) {
		if host == "montreal" {
			c.Patience = 3 * time.Second
			c.Peers = append(c.Peers, config.Neighbour{
				Host: "twin", Site: "twin", V4: netip.MustParsePrefix("10.1.1.128/25"),
				Uplinks: []config.Uplink{{Name: "public", Address: netip.MustParseAddr("100.66.0.11"), Carries: "both"}},
			})
		}
	})
	defer func() { t.Log("what was said:\n" + strings.Join(p.lines.lines, "\n")) }()
	p.bare("single", 1, 1)
	p.bare("mute", 2, 2)
	p.bare("stuck", 3, 2, "-device", "nvme,serial=a")
	p.ticks("phone", "web")
	time.Sleep(200 * time.Millisecond)
	p.gap()
	p.refusals()
	p.farSide()
	p.guestsThatEnd()
	p.undone()
	p.movesAfterAll()
	p.ticksWhole()
}

// refusals are those that montreal's agent, or a healthy destination, gives.
func (p *trial) refusals() {
	before := p.inventory()
	p.holdAddress("sanjose", "10.2.1.50/32")
	for _, c := range []struct {
		name  string
		req   migration.Request
		code  migration.Code
		words []string
	}{
		{"unknown guest", migration.Request{Guest: "wbe", To: "sanjose"}, migration.CodeUnknownGuest, []string{"guest wbe", "it has: "}},
		{"unknown site", migration.Request{Guest: "web", To: "sanhose"}, migration.CodeUnknownSite, []string{"site sanhose", "sanjose"}},
		{"there already", migration.Request{Guest: "web", To: "montreal"}, migration.CodeUsage, []string{"it is on montreal already"}},
		{"one NIC", migration.Request{Guest: "single", To: "sanjose"}, migration.CodeGuest, []string{"guest single", "no second NIC"}},
		{"no channel", migration.Request{Guest: "mute", To: "sanjose"}, migration.CodeGuest, []string{"guest mute", "no guest channel"}},
		{"a device that cannot", migration.Request{Guest: "stuck", To: "sanjose", Network: "tunnel"}, migration.CodeHypervisor, []string{"guest stuck", "nvme"}},
		{"next address in use", migration.Request{Guest: "web", To: "sanjose", NextAddress: netip.MustParseAddr("10.2.1.50")}, migration.CodeAddress, []string{"10.2.1.50", "in use"}},
		{"next address elsewhere", migration.Request{Guest: "web", To: "sanjose", NextAddress: netip.MustParseAddr("10.3.1.50")}, migration.CodeAddress, []string{"10.3.1.50", "not in"}},
		{"subnets that overlap", migration.Request{Guest: "web", To: "twin"}, migration.CodeAddress, []string{"10.1.1.128/25", "overlap"}},
	} {
		outcome, err := p.outcome(c.req)
		p.said(c.name, err, c.code, c.words...)
		if outcome != migration.Refused {
			p.Errorf("%s: outcome %s", c.name, outcome)
		}
		p.untouched(c.name, "web", before, 3*time.Second)
	}
	p.said("abort of an unknown id", p.w.agents["montreal"].client.Abort(p.Context(), "m-00000000"), migration.CodeUsage, "m-00000000", "no such migration")
	p.untouched("abort of an unknown id", "web", before, time.Second)
}

// holdAddress gives an address to the router of a site, on the guests' subnet.
func (p *trial) holdAddress(site, cidr string) {
	p.Helper()
	edge := p.w.topo.EdgeDevices()[site]
	p.must(netns.Do(edge.Namespace, func() error {
		lan, err := netlink.LinkByName("lan")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lan, addr)
	}))
}

// farSide are refusals that come of the destination's agent, or of the way there.
func (p *trial) farSide() {
	before := p.inventory()
	lisbon := p.w.agents["lisbon"]
	p.must(lisbon.kill())
	down := p.began(migration.Request{Guest: "mute", To: "lisbon", Network: "tunnel"})
	_, err := p.w.agents["montreal"].client.Migrate(p.Context(), migration.Request{Guest: "mute", To: "sanjose", Network: "tunnel"})
	p.said("a second migration while one runs", err, migration.CodeBusy, "guest mute", down)
	awake := p.silences("mail")
	silent := p.began(migration.Request{Guest: "mail", To: "sanjose"})

	// While nobody answers in lisbon: a destination that is short of memory.
	p.restart("sanjose", func(c *config.Config) { c.MemoryReserve = 1 << 50 })
	outcome, err := p.outcome(migration.Request{Guest: "web", To: "sanjose"})
	p.said("short of memory", err, migration.CodeCapacity, "host sanjose", "MiB are needed")
	p.is("short of memory", outcome, migration.Refused)
	p.restart("sanjose", func(c *config.Config) { c.MemoryReserve = 0 })

	rep := p.ends(silent, 10*time.Second)
	p.said("a guest that is silent", rep.Problem, migration.CodeGuest, "guest mail", "its guest channel does not answer", "see whether the guest is well")
	p.is("a guest that is silent", rep.Outcome, migration.Refused)
	awake()
	if g, err := p.guest("montreal", "mail"); err != nil || g.Status != "running" || g.Migration != "" {
		p.Errorf("a guest that is silent: %+v, %v: want it running, and free", g, err)
	}
	rep = p.ends(down, 25*time.Second)
	p.said("an agent that is down", rep.Problem, migration.CodePeer, "agent lisbon", "is it running")
	p.is("an agent that is down", rep.Outcome, migration.Refused)

	own := lisbon.config.TLS
	other := p.TempDir()
	ca, err := peer.NewFleetCA(other, time.Now())
	p.must(err)
	p.must(ca.Issue("lisbon", time.Now()))
	p.must(lisbon.start(p.Context()))
	p.restart("lisbon", func(c *config.Config) {
		c.TLS.Cert, c.TLS.Key = filepath.Join(other, "lisbon.pem"), filepath.Join(other, "lisbon.key")
	})
	outcome, err = p.outcome(migration.Request{Guest: "web", To: "lisbon"})
	p.said("a certificate of another fleet", err, migration.CodePeer, "agent lisbon", "certificate")
	p.is("a certificate of another fleet", outcome, migration.Refused)
	p.restart("lisbon", func(c *config.Config) { c.TLS = own })

	p.nft("add table ip fragments; add chain ip fragments every { type filter hook prerouting priority -450; }; add rule ip fragments every ip frag-off & 0x3fff != 0 drop")
	p.must(p.w.topo.SetLink("lisbon", "public", func(l *wan.Link) { l.MTU = 1280 }))
	outcome, err = p.outcome(migration.Request{Guest: "web", To: "lisbon"})
	p.said("neither fits nor passes in fragments", err, migration.CodePath, "1580 bytes", "fragments")
	p.is("neither fits nor passes in fragments", outcome, migration.Refused)
	p.must(p.w.topo.SetLink("lisbon", "public", func(l *wan.Link) { l.MTU = 1400 }))
	p.nft("delete table ip fragments")

	p.nft(`table ip tunnels { chain every { type filter hook forward priority 0;
		ip frag-off & 0x1fff != 0 accept; udp sport 7440 accept; udp dport 7440 accept; meta l4proto udp drop; }; }`)
	outcome, err = p.outcome(migration.Request{Guest: "web", To: "lisbon"})
	p.said("a firewall that tunnels do not pass", err, migration.CodePath, "lisbon does not answer", "a firewall", "let UDP")
	p.is("a firewall that tunnels do not pass", outcome, migration.Refused)
	p.nft("delete table ip tunnels")
	p.untouched("the far side's refusals", "web", before, 5*time.Second)
}

// silences makes a guest silent: what speaks on its channel stands still for some seconds, and all else goes on.
// awake waits until it answers again.
func (p *trial) silences(name string) (awake func()) {
	p.Helper()
	client := p.w.agents["montreal"].client
	var out guest.Executed
	p.must(client.CallGuest(p.Context(), name, "exec", guest.Exec{Command: `set -e
		mkdir -p /freezer; mount -t cgroup2 none /freezer; mkdir /freezer/1; echo 1 >/freezer/1/cgroup.procs
		(sleep 0.3; echo 1 >/freezer/1/cgroup.freeze; sleep 9; echo 0 >/freezer/1/cgroup.freeze) >/dev/null 2>&1 </dev/null &`}, &out))
	if out.Exit != 0 {
		p.Fatalf("guest %s cannot be silenced: %s%s", name, out.Stdout, out.Stderr)
	}
	time.Sleep(600 * time.Millisecond)
	return func() {
		p.Helper()
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(p.Context(), time.Second)
			err := client.CallGuest(ctx, name, "exec", guest.Exec{Command: "true"}, &out)
			cancel()
			if err == nil {
				return
			}
			if time.Now().After(until) {
				p.Fatalf("guest %s is silent for good: %v", name, err)
			}
		}
	}
}

// orders runs a command in a guest. It may not come to an answer: what is not heard is said again.
func (p *trial) orders(name, command string) {
	p.Helper()
	for range 3 {
		var out guest.Executed
		err := p.w.agents["montreal"].client.CallGuest(p.Context(), name, "exec", guest.Exec{Command: command, TimeoutMS: 2000}, &out)
		if err == nil {
			return
		}
		p.Logf("guest %s: %v", name, err)
	}
}

func (p *trial) is(name string, got, want migration.Outcome) {
	p.Helper()
	if got != want {
		p.Errorf("%s: outcome %s, want %s", name, got, want)
	}
}

// guestsThatEnd end by themselves while their memory is copied.
func (p *trial) guestsThatEnd() {
	ends := []struct{ guest, how, command, words string }{
		{"db", "powered off", "echo o > /proc/sysrq-trigger", "guest db powered off during the migration"},
		{"mail", "rebooted", "echo b > /proc/sysrq-trigger", "guest mail rebooted during the migration"},
		{"cache", "panicked", "echo c > /proc/sysrq-trigger", "guest cache panicked during the migration"},
	}
	ids := make([]string, len(ends))
	for i, e := range ends {
		ids[i] = p.began(migration.Request{Guest: e.guest, To: "sanjose", Bandwidth: crawl / 2})
	}
	for i, e := range ends {
		p.reaches(ids[i], "copy")
		p.orders(e.guest, "(sleep 0.3; "+e.command+") &")
	}
	for i, e := range ends {
		rep := p.ends(ids[i], 20*time.Second)
		p.said("guest "+e.how, rep.Problem, migration.CodeGuestGone, e.words)
		p.is("guest "+e.how, rep.Outcome, migration.Aborted)
		if _, err := p.guest("montreal", e.guest); err == nil {
			p.Errorf("guest %s: still under care though it is gone", e.guest)
		}
	}
	left := strings.Join(p.inventory()["sanjose"], "\n")
	for _, e := range ends {
		// As a word: the random digits of a lab or a migration may have db in them.
		if regexp.MustCompile(`\b` + e.guest + `\b`).MatchString(left) {
			p.Errorf("guest %s: left in sanjose:\n%s", e.guest, left)
		}
	}
	if gap := p.gap(); gap > mostGap {
		p.Errorf("guests that end: the client of another waited for %v", gap)
	}
}

// undone are failures in the middle of the copy.
func (p *trial) undone() {
	before := p.inventory()
	for n := 10; n < 13; n++ { // the first addresses that sanjose would choose
		p.holdAddress("sanjose", fmt.Sprintf("10.2.1.%d/32", n))
	}
	sanjose := p.w.agents["sanjose"]
	copying := func() string {
		id := p.began(migration.Request{Guest: "web", To: "sanjose", Bandwidth: crawl})
		p.reaches(id, "copy")
		time.Sleep(300 * time.Millisecond)
		return id
	}
	id := copying()
	p.must(p.w.agents["montreal"].client.Abort(p.Context(), id))
	rep := p.ends(id, 10*time.Second)
	p.said("called off", rep.Problem, migration.CodeAsked, "aborted on request")
	p.is("called off", rep.Outcome, migration.Aborted)
	if next := rep.Next[0].Prefix.Addr().String(); next != "10.2.1.13" {
		p.Errorf("next address %s though 10.2.1.10 to 12 are in use: want 10.2.1.13", next)
	}
	p.untouched("called off", "web", before, 5*time.Second)

	id = copying()
	pid, err := sanjose.qemuPID(p.Context(), "web")
	p.must(err)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.Fatalf("kill QEMU %d in sanjose: %v", pid, err)
	}
	rep = p.ends(id, 10*time.Second)
	p.said("destination's QEMU killed", rep.Problem, migration.CodeHypervisor, "guest web")
	p.is("destination's QEMU killed", rep.Outcome, migration.Aborted)
	p.untouched("destination's QEMU killed", "web", before, 5*time.Second)

	id = copying()
	p.must(sanjose.kill())
	rep = p.ends(id, 20*time.Second)
	p.said("destination's agent killed", rep.Problem, migration.CodePath, "guest web", "sanjose")
	p.is("destination's agent killed", rep.Outcome, migration.Aborted)
	p.must(sanjose.start(p.Context()))
	p.untouched("destination's agent killed", "web", before, 8*time.Second)

	id = copying()
	asked := time.Now()
	p.must(p.w.topo.SetLink("sanjose", scenario.AllUplinks, func(l *wan.Link) { l.Cut = wan.CutBoth }))
	rep = p.ends(id, 25*time.Second)
	p.Logf("all uplinks cut: outcome after %v", time.Since(asked).Round(100*time.Millisecond))
	p.said("all uplinks cut", rep.Problem, migration.CodePath, "guest web", "not a byte", "sanjose")
	p.is("all uplinks cut", rep.Outcome, migration.Aborted)
	p.must(p.w.topo.SetLink("sanjose", scenario.AllUplinks, func(l *wan.Link) { l.Cut = "" }))
	p.untouched("all uplinks cut", "web", before, 12*time.Second)
}

// movesAfterAll: the same guest moves, over the narrow way, and cannot be called back.
func (p *trial) movesAfterAll() {
	id := p.began(migration.Request{Guest: "web", To: "lisbon"})
	p.reaches(id, string(migration.TargetResume))
	err := p.w.agents["montreal"].client.Abort(p.Context(), id)
	var words []string
	if err == nil {
		p.Error("abort after the switch: no error")
	}
	p.said("abort after the switch", err, migration.CodeBusy, append(words, id, "handed over to lisbon")...)
	rep := p.ends(id, 25*time.Second)
	p.is("the same guest, in fragments", rep.Outcome, migration.Completed)
	if rep.Problem != nil {
		p.Errorf("the same guest: %v", rep.Problem)
	}
	time.Sleep(500 * time.Millisecond)
	if gap := p.gap(); gap > 5*time.Second {
		p.Errorf("the same guest: its client waited for %v", gap)
	}
	p.evacuated()
}

// evacuated: what is left in montreal goes where it is taken; what cannot move stays as it
// is, and the reason is told.
func (p *trial) evacuated() {
	montreal := p.w.agents["montreal"].client
	all, err := montreal.Neighbours(p.Context())
	p.must(err)
	for _, n := range all {
		if _, runs := p.w.agents[n.Host]; n.Up == nil || *n.Up != runs || n.State == "" || runs != (n.Guests != nil) || runs != (n.Free != nil) {
			p.Errorf("host ls: %+v, runs: %v", n, runs)
		}
	}
	done, err := evacuate.Run(p.Context(), montreal, evacuate.Request{
		Like: migration.Request{Network: "tunnel", Downtime: 2 * time.Second}, Width: policy.EvacuateWidth,
	})
	p.must(err)
	for _, g := range done.Guests {
		p.lines.add("evacuate: %s to %q\n\t%s %s", g.Guest, g.To, g.Outcome, g.Reason)
	}
	if len(done.Guests) != 3 || done.OK {
		p.Fatalf("evacuated: %+v", done)
	}
	for _, g := range done.Guests { // by name
		if g.Guest == "stuck" {
			if g.Moved() || g.To != "" || !strings.Contains(g.Reason, "nvme") || strings.Contains(g.Reason, "\n") {
				p.Errorf("evacuated: %+v, want that it stays as it has an nvme", g)
			}
			if left, err := p.guest("montreal", g.Guest); err != nil || left.Status != "running" || left.Migration != "" {
				p.Errorf("evacuated: %+v, %v; want it running, and free", left, err)
			}
			p.must(montreal.StopGuest(p.Context(), g.Guest))
			continue
		}
		if !g.Moved() || g.Predicted == nil || g.TotalS == nil || g.To == "twin" {
			p.Errorf("evacuated: %+v, want it moved", g)
			continue
		}
		if there, err := p.guest(g.To, g.Guest); err != nil || there.Status != "running" {
			p.Errorf("evacuated: %s on %s: %+v, %v", g.Guest, g.To, there, err)
		}
		p.must(p.w.agents[g.To].client.StopGuest(p.Context(), g.Guest))
	}
}
