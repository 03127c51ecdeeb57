package lab

import (
	"fmt"
	"net/netip"
	"testing"

	"godwit/lab/topo"
)

// TestFirstAddress: hosts of a site begin at addresses of their own, all of which are in its subnet.
func TestFirstAddress(t *testing.T) {
	for _, c := range []struct {
		subnet string
		hosts  int
		want   []uint32
	}{
		{"10.1.1.0/24", 3, []uint32{10, 50, 90}},
		{"10.1.1.0/24", 16, []uint32{10, 25, 40}},
		{"10.1.0.0/16", 16, []uint32{10, 50, 90}},
		{"10.1.1.0/26", 4, []uint32{10, 23, 36}},
		{"10.1.1.0/27", 1, []uint32{2}},
		{"10.1.1.0/28", 3, []uint32{2, 6, 10}},
		{"10.1.1.0/28", 13, []uint32{2, 3, 4}},
		{"fd00:1:1::/120", 16, []uint32{10, 25, 40}},
		{"fd00:1:1::/64", 2, []uint32{10, 50}},
	} {
		subnet := netip.MustParsePrefix(c.subnet)
		all := []topo.Host{{Name: "other", Site: "b"}}
		for i := range c.hosts {
			h := topo.Host{Name: fmt.Sprintf("a-%d", i+1), Site: "a"}
			if subnet.Addr().Is4() {
				h.GuestV4 = subnet
			} else {
				h.GuestV6 = subnet
			}
			all = append(all, h)
		}
		seen := map[uint32]bool{}
		for i, h := range all[1:] {
			first := firstAddress(h, all)
			size := 1 << min(subnet.Addr().BitLen()-subnet.Bits(), 16)
			if seen[first] || int(first) >= size-1 || i < len(c.want) && first != c.want[i] {
				t.Errorf("host %d of %d in %s begins at %d", i+1, c.hosts, subnet, first)
			}
			seen[first] = true
		}
	}
}
