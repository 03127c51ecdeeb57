package lab

import (
	"maps"
	"slices"
	"testing"

	"godwit/agent/config"
)

const subnetTwice = `
name: subnet agent of two addresses
sites:
  - name: montreal
    guest_net: {v4: 10.1.1.0/24, v6: fd00:1:1::/64}
    hosts: 3
    subnet_agent: montreal-3
    uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: fd00:2:1::/64}, uplinks: [{name: public, rate: 1gbit, delay: 2ms, queue: 4MiB}]}
clients:
  - {name: phone, at: internet}
guests:
  - {name: web, site: montreal-1, memory: 112MiB}
`

// TestSubnetAgentOfTwoAddresses: a guest leaves one host of a site for another, and then the site, with an old address of
// each: the subnet agent, which stands for the first, stands for the second too. Both come home with the guest.
func TestSubnetAgentOfTwoAddresses(t *testing.T) {
	p := newTrial(t, subnetTwice, func(string, *config.Config) {})
	p.listens("phone")
	flows := p.plainFlows("first", map[string]string{"web": "montreal-1"})
	p.lives("at home", flows)
	p.moves("montreal-2", map[string]string{"web": "montreal-1"})
	p.homes("web", "montreal-2", "montreal-3")

	first := p.first["web"]
	delete(p.first, "web") // flows to what it has now, too
	flows = append(flows, p.plainFlows("second", map[string]string{"web": "montreal-2"})...)
	if len(p.first["web"]) != 2*len(first) {
		t.Fatalf("%v beside %v", p.first, first)
	}
	p.lives("at the second host", flows)
	p.moves("sanjose", map[string]string{"web": "montreal-2"})
	p.homes("web", "sanjose", "montreal-3")
	p.stands("montreal-3", 4)
	p.lives("at another site", flows)

	p.moves("montreal-1", map[string]string{"web": "sanjose"})
	p.homes("web", "montreal-1", "montreal-1")
	p.stands("montreal-3", 0)
	p.lives("at home again", flows)
	p.lostNothing(flows)
}

// stands checks for how many addresses a host stands, each once.
func (p *trial) stands(host string, want int) {
	p.Helper()
	got := map[string]bool{}
	all := p.standsFor(host)
	for _, addr := range all {
		got[addr.String()] = true
	}
	if len(all) != want || len(got) != want {
		p.Errorf("%s stands for %v, want %d", host, slices.Sorted(maps.Keys(got)), want)
	}
}
