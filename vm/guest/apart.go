package guest

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// ApartFor is how long AwaitJoin waits for a connection whose client is known by no address of a family that is
// announced: a kernel joins no IPv6 address with a socket of IPv4, nor the other way round (Linux,
// mptcp_pm_addr_families_match). One whose socket takes both, and that has both, joins within a round trip, and later
// is early enough.
const ApartFor = 500 * time.Millisecond

// Reaches says whether one of the new addresses is of the family of a client's address.
func (p AwaitJoin) Reaches(client netip.Addr) bool {
	return slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == client.Is4() })
}

// WhyApart says why such a connection stays.
func WhyApart(client netip.Addr) string {
	family := "IPv6"
	if client.Is4() {
		family = "IPv4"
	}
	return fmt.Sprintf("its client is known by %s alone, and the next address is none of that", family)
}
