package lab

import (
	"context"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

const diskWorld = `
name: disk
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 400mbit, delay: 5ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 400mbit, delay: 5ms}]}
  - {name: dallas, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: public, rate: 400mbit, delay: 5ms}]}
clients:
  - {name: phone, at: sanjose}
guests:
  - {name: web, site: montreal, memory: 192MiB, disk: 200MiB, run: ["disk rate=1MiB/s area=24MiB"]}
`

// TestDiskMoves: every page of a disk that the guest writes to all the time is what the
// guest wrote last, after a move that was called off, one whose agent was killed, and a
// ring of moves that ends where it began; and no copy is left behind. The hosts' congestion control takes losses for
// congestion, as that of most does, whatever this machine's is.
func TestDiskMoves(t *testing.T) {
	p := newTrial(t, diskWorld, func(string, *config.Config) {})
	for _, a := range p.w.agents {
		p.sysctl(a.host.Namespace, "ipv4/tcp_congestion_control", "reno")
	}
	p.whole("montreal")
	ends := func(end func(id string), want migration.Outcome, at string) {
		id := p.began(migration.Request{Guest: "web", To: "sanjose", Bandwidth: 200_000_000}) // its seed takes a second
		p.reaches(id, string(migration.Seed))
		time.Sleep(300 * time.Millisecond)
		end(id)
		if rep := p.ends(id, 40*time.Second); rep.Outcome != want {
			t.Fatalf("%s instead of %s, %v", rep.Outcome, want, rep.Problem)
		}
		p.w.moved("web", at)
		p.whole(at)
	}
	ends(func(id string) { p.must(p.w.agents["montreal"].client.Abort(p.Context(), id)) }, migration.Aborted, "montreal")
	ends(func(string) { p.restart("montreal", nil) }, migration.Completed, "sanjose") // it begins again
	at := "sanjose"
	for _, to := range []string{"dallas", "montreal", "sanjose"} {
		rep := migrate(t, p.w.agents[at], to)
		if rep.Outcome != migration.Completed {
			t.Fatalf("%s → %s: %s, %v", at, to, rep.Outcome, rep.Problem)
		}
		t.Logf("%s → %s: %d bytes of disk on the wire, critical path %v", at, to, rep.DiskBytes, rep.Critical)
		if rep.DiskBytes < 24<<20 || rep.DiskBytes > 100<<20 {
			t.Errorf("%d bytes of disk on the wire, for 24 MiB of data in 200 MiB", rep.DiskBytes)
		}
		at = to
		p.w.moved("web", at)
		p.whole(at)
	}
}

// whole checks the guest's disk page by page, and that no host has more of it than it
// should. A source may take a moment to clean up.
func (p *trial) whole(host string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	var v guest.Verified
	p.must(p.w.agents[host].client.CallGuest(ctx, "web", "verify", struct{}{}, &v))
	if v.Areas != 1 || v.Pages < 24<<20/4096 || v.Corrupt != 0 || len(v.Errors) > 0 {
		p.Errorf("on %s: the disk is not whole: %+v", host, v)
	}
	var left []string
	for begun := time.Now(); time.Since(begun) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, a := range p.w.agents {
			left = append(left, p.w.diskLeftovers(a)...)
		}
		if len(left) == 0 {
			return
		}
	}
	p.Errorf("left: %v", left)
}
