package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSeen: a connection is what others see of it, which of one that is translated at both ends are two machines.
func TestSeen(t *testing.T) {
	const established, timeWait = 3, 7
	port := netip.MustParseAddrPort
	client, guest, inside, node, service := port("10.3.0.2:4000"), port("10.1.1.10:80"), port("172.17.0.2:8080"), port("10.1.1.11:8080"), port("10.96.0.1:443")
	for name, c := range map[string]struct {
		status                     uint32
		state                      uint8
		from, to, replies, replied netip.AddrPort
		want                       []Connection
	}{
		"published":                 {destinationTranslated, established, client, guest, inside, client, []Connection{{guest, client, "established", false}}},
		"a port of the guest's own": {destinationTranslated, established, client, guest, port("10.1.1.10:8080"), client, nil},
		"that is over":              {destinationTranslated, timeWait, client, guest, inside, client, nil},
		"by a flow table":           {destinationTranslated | offloaded, 0, client, guest, inside, client, []Connection{{guest, client, "established", false}}},
		"asked for within":          {sourceTranslated, established, inside, client, client, guest, []Connection{{guest, client, "established", true}}},
		"asked for within, of a service": {sourceTranslated | destinationTranslated, established, inside, service, node, guest,
			[]Connection{{service, inside, "established", false}, {guest, node, "established", true}}},
		"passed on to another": {sourceTranslated | destinationTranslated, established, client, guest, node, port("10.1.1.10:4000"),
			[]Connection{{guest, client, "established", false}, {port("10.1.1.10:4000"), node, "established", true}}},
	} {
		e := entry{tuple{unix.IPPROTO_TCP, c.from, c.to}, tuple{unix.IPPROTO_TCP, c.replies, c.replied}, c.status, c.state}
		if got := e.seen(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
