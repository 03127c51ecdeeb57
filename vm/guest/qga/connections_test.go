package qga

import (
	"net/netip"
	"testing"

	"godwit/vm/guest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestConnections: one line a connection, whatever its subflows are.
func TestConnections(t *testing.T) {
	port := netip.MustParseAddrPort
	table := sockets{
		tcp: []socket{
			{"ESTAB", port("10.1.1.10:80"), port("10.9.1.2:4001"), "aa", 0, false},
			{"ESTAB", port("10.2.1.10:80"), port("10.9.1.2:4002"), "aa", 0, false},
			{"ESTAB", port("10.1.1.10:22"), port("10.9.1.3:5000"), "", 0, false},
			{"TIME-WAIT", port("10.1.1.10:22"), port("10.9.1.3:5001"), "", 0, false},
			{"ESTAB", port("10.2.1.10:22"), port("10.9.1.3:5002"), "", 0, false},
		},
		udp: []socket{{"ESTAB", port("10.1.1.10:53"), port("10.9.1.3:6000"), "", 0, false}},
	}
	want := []guest.Connection{
		{Kind: guest.KindMPTCP, Local: port("10.1.1.10:80"), Remote: port("10.9.1.2:4001"), State: "ESTAB",
			Working: []netip.AddrPort{port("10.1.1.10:80"), port("10.2.1.10:80")}},
		{Kind: guest.KindTCP, Local: port("10.1.1.10:22"), Remote: port("10.9.1.3:5000"), State: "ESTAB"},
		{Kind: guest.KindUDP, Local: port("10.1.1.10:53"), Remote: port("10.9.1.3:6000")},
	}
	got := table.connections([]netip.Addr{netip.MustParseAddr("10.1.1.10")})
	if diff := cmp.Diff(want, got.List, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
}
