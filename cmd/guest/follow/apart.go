package follow

import (
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
)

// apartFor is how long a connection is waited for of which nothing shows that its client has an address of a family that is
// announced: if it has, and its socket takes both, it joins within a round trip, and later is early enough.
const apartFor = 500 * time.Millisecond

// waits says whether somebody is behind who may still come.
func (w *watch) waits() bool {
	return len(w.behind) > w.aside || w.aside > 0 && time.Since(w.start) < apartFor
}

// apart says whether what is announced is of another family than each address by which the client of c is known: a kernel joins
// no IPv6 address with a socket of IPv4, nor the other way round (Linux, mptcp_pm_addr_families_match).
func (w *watch) apart(c mptcp.Connection) bool {
	announced := func(client netip.Addr) bool {
		return slices.ContainsFunc(w.params.Addrs, func(a netip.Addr) bool { return a.Is4() == client.Is4() })
	}
	return len(w.params.Addrs) > 0 && !announced(c.Remote.Addr()) &&
		!slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool { return announced(s.Remote.Addr()) })
}

// leaves takes one from those that are behind.
func (w *watch) leaves(token uint32) (was bool) {
	c, was := w.behind[token]
	if was && w.apart(c) {
		w.aside--
	}
	delete(w.behind, token)
	return was
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
