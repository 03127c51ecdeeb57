package lab

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"godwit/agent"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

const leaseWorld = `
name: lease
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 350mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 128MiB}
`

// TestLeaseOfTheConfiguration: a tunnel that plain TCP uses lives on for as long as the
// configuration of the guest's new host says, and ends then at both ends, also where its
// home would have given it longer.
func TestLeaseOfTheConfiguration(t *testing.T) {
	const lease = 8 * time.Second
	p := newTrial(t, leaseWorld, func(host string, c *agent.Config) {
		if c.Lease = time.Hour; host == "sanjose" {
			c.Lease = lease
		}
	})
	p.ticks("phone", "web")
	id := p.began(migration.Request{Guest: "web", To: "sanjose"})
	if rep := p.endsOn("montreal", id, 60*time.Second); rep.Outcome != migration.Completed {
		t.Fatalf("%s, %v", rep.Outcome, rep.Problem)
	}
	ended := time.Now()
	for p.tunnels("sanjose") > 0 {
		switch after := time.Since(ended); {
		case after > 2*lease:
			t.Fatalf("a tunnel stands %v after the move", after)
		case p.gap() >= time.Hour:
			t.Fatalf("the connection was lost %v after the move", after)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if after := time.Since(ended); after < lease/2 {
		t.Errorf("the tunnel ended %v after the move", after)
	}
	for until := time.Now().Add(10 * time.Second); p.tunnels("montreal") > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("its end at the guest's home stands for longer")
		}
	}
}

// TestTunnelKilledInItsLease kills the process of a leased tunnel at either host: it stands again, and
// plain TCP that uses it goes on.
func TestTunnelKilledInItsLease(t *testing.T) {
	p := newTrial(t, leaseWorld, func(string, *agent.Config) {})
	p.ticks("phone", "web")
	if rep := p.endsOn("montreal", p.began(migration.Request{Guest: "web", To: "sanjose"}), 60*time.Second); rep.Outcome != migration.Completed {
		t.Fatalf("%s, %v", rep.Outcome, rep.Problem)
	}
	for _, host := range []string{"sanjose", "montreal"} {
		h := p.w.agents[host]
		var found []tunnel.Status
		p.must(netns.Do(h.host.Namespace, func() (err error) {
			found, err = tunnel.Found(t.Context(), filepath.Join(h.config.Run, "tunnels"))
			return err
		}))
		if len(found) != 1 || !found[0].Alive {
			t.Fatalf("tunnels of %s: %+v", host, found)
		}
		p.must(syscall.Kill(found[0].PID, syscall.SIGKILL))
		time.Sleep(4 * time.Second)
		p.gap()
		time.Sleep(2 * time.Second)
		if gap := p.gap(); gap > mostGap || p.tunnels(host) != 1 {
			t.Errorf("some seconds after the tunnel of %s was killed: %d stand, the client waited for %v", host, p.tunnels(host), gap)
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
