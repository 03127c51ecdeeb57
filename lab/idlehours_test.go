package lab

import (
	"flag"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/lab/traffic"
	"godwit/migration"
)

var idleHours = flag.Bool("idle-hours", false, "run TestIdleHours, for hours of the clock")

const idleWorld = `
name: idle hours
sites:
  - {name: north, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: fibre, rate: 100mbit, delay: 10ms}]}
  - {name: south, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: fibre, rate: 100mbit, delay: 15ms}]}
  - {name: west, guest_net: {v4: 10.3.1.0/24}, uplinks: [{name: fibre, rate: 100mbit, delay: 5ms}]}
clients:
  - {name: phone, at: internet}
  - {name: natted, at: internet, nat: true}
  - {name: tablet, at: internet, mptcp: single, uplinks: 2}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: north, memory: 112MiB}
`

// silence is between two words of a connection of TestIdleHours. Before the next one the guest's kernel has asked,
// after two hours, whether its client is there.
const silence = 150 * time.Minute

// TestIdleHours: connections that say a word each two and a half hours live on, and say the next, where their guest
// moves twice, in the middle between two words. MPTCP follows each time, also from behind NAT and by a single path;
// plain TCP is led by the tunnel, at last over a third site. Whatever runs out in hours has to hold: leases, what
// tunnels and agents have agreed on, neighbours, tracked connections.
func TestIdleHours(t *testing.T) {
	if !*idleHours {
		t.Skip("it takes five hours, but where the clock jumps over idle time: lab/kerneltest (-args -idle-hours asks for it)")
	}
	exactly(t)
	p := newTrial(t, idleWorld, func(_ string, c *config.Config) { c.Lease = 24 * time.Hour })
	p.listens("phone", "natted", "tablet", "desk")
	var flows []string
	for _, client := range []string{"phone", "natted", "tablet", "desk"} {
		for _, kind := range []string{traffic.Requests, traffic.Ticks} {
			f := traffic.Flow{Name: client + " " + kind, Kind: kind, Target: p.addresses("north")[0], MPTCP: client != "desk", Every: silence, Silent: true}
			p.must(p.w.clients[client].Start(f))
			flows = append(flows, f.Name)
		}
	}
	word, from := time.Now(), "north"
	for i, to := range []string{"south", "west"} {
		time.Sleep(time.Until(word.Add(silence / 2)))
		p.from = from
		rep := p.ends(p.began(migration.Request{Guest: "web", To: to}), 10*time.Minute)
		if rep.Outcome != migration.Completed {
			p.Fatalf("to %s: %s, %v", to, rep.Outcome, rep.Problem)
		}
		from, word = to, word.Add(silence)
		time.Sleep(time.Until(word.Add(time.Minute)))
		p.spoke(to, flows, int64(i+2), p.addresses(to)[0])
	}
	for _, name := range flows {
		client, _, _ := strings.Cut(name, " ")
		r, err := p.w.clients[client].Stop(name)
		p.must(err)
		if !r.Survived || r.Records != 3 || r.Lost+r.Repeated+r.Corrupt != 0 || r.MPTCP != r.Flow.MPTCP {
			p.Errorf("%s: survived %v, %d records, %d lost, %d repeated, %d corrupt, MPTCP %v\n%s", name, r.Survived, r.Records, r.Lost, r.Repeated, r.Corrupt, r.MPTCP, p.missing(&r))
		}
	}
}

// spoke checks that each connection has said that many words, those by MPTCP to the address that the guest has now.
func (p *trial) spoke(at string, flows []string, words int64, now netip.Addr) {
	p.Helper()
	for _, name := range flows {
		s := p.latest(name)
		p.Logf("%s, %s: %d records, %d alive, %v", at, name, s.Records, s.Alive, s.Remotes)
		if s.Alive != 1 || s.Records != words {
			p.Errorf("at %s: %s has said %d of %d words, %d alive\n%s", at, name, s.Records, words, s.Alive, p.sockets([]string{name}, nil))
		}
		if s.MPTCP == 1 && (len(s.Remotes) != 1 || s.Remotes[now] != 1) {
			p.Errorf("at %s: %s goes to %v, not to %s", at, name, s.Remotes, now)
		}
	}
}
