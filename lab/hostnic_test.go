package lab

import (
	"testing"

	"godwit/agent/config"
)

// TestHostsWithOneNIC moves a guest to the other host of its LAN, to another site and back, where hosts are as most are:
// their only NIC is the port of the guests' bridge, which has the host's own address, in the guests' subnet. MPTCP
// follows, plain TCP and UDP to the addresses that it leaves go on, in both families; nothing is lost, and nothing left.
func TestHostsWithOneNIC(t *testing.T) {
	w := &world{oneNIC: true}
	p := newTrialIn(t, w, `
name: one NIC
sites:
  - {name: montreal, guest_net: {v4: 10.1.1.0/24, v6: "fd00:1:1::/64"}, hosts: 2, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
  - {name: sanjose, guest_net: {v4: 10.2.1.0/24, v6: "fd00:2:1::/64"}, uplinks: [{name: public, rate: 200mbit, delay: 2ms}]}
clients:
  - {name: phone, at: internet}
  - {name: desk, at: internet, mptcp: off}
guests:
  - {name: web, site: montreal, memory: 112MiB}
`, func(string, *config.Config) {})
	p.movesAround([]string{"montreal-1", "montreal-2", "sanjose", "montreal-1"})
}
