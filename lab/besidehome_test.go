package lab

import (
	"testing"
	"time"

	"godwit/agent/config"
)

const besideHomeWorld = `
name: beside its home
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}, hosts: 2, uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}, uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal-1, memory: 112MiB}
`

// TestByAHostOfItsSite: a guest goes to another host of its site, and from there away. Its neighbours know one of
// its NICs at that host, and what was open goes on all the same when that host is out of the way.
func TestByAHostOfItsSite(t *testing.T) {
	p := newTrial(t, besideHomeWorld, func(string, *config.Config) {})
	p.listens("phone")
	flows := p.plainFlows("plain", map[string]string{"web": "montreal-1"})
	p.lives("at home", flows)
	p.moves("montreal-2", map[string]string{"web": "montreal-1"})
	p.lives("beside its home", flows)
	p.moves("sanjose", map[string]string{"web": "montreal-2"})
	time.Sleep(3 * time.Second) // until nothing goes by montreal-2 any more
	p.lives("away", flows)
	p.lostNothing(flows)
}
