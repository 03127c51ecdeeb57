package tunnel

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
)

// InnerTaken names a device of this namespace for whose addresses the inner ones of c would be mistaken, "" where there
// is none: another tunnel's, as they are derived and few, or what somebody else has of 169.254.0.0/16. An answer to an
// echo would then leave by the one of both that was made first.
func InnerTaken(c Config) (device string, err error) {
	own, peer := c.Inner, c.PeerInner
	if !own.IsValid() || !peer.IsValid() {
		own, peer = InnerAddrs(c.Local, c.Remote)
	}
	addrs, err := dump.Addrs(nil, unix.AF_INET)
	if err != nil {
		return "", fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if !meets(a, own) && !meets(a, peer) {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil || link.Attrs().Name == c.Name {
			continue // it has gone, or is an earlier try
		}
		return link.Attrs().Name, nil
	}
	return "", nil
}

// allLinkLocal is the length of 169.254.0.0/16, which a device may have as a whole (RFC 3927): it has no host of its own then.
const allLinkLocal = 16

// meets says whether a device with that address has inner, or a way of its own there.
func meets(a netlink.Addr, inner netip.Addr) bool {
	if a.IP.Equal(inner.AsSlice()) || a.Peer != nil && a.Peer.IP.Equal(inner.AsSlice()) {
		return true
	}
	for _, n := range []*net.IPNet{a.IPNet, a.Peer} {
		if n == nil {
			continue
		}
		if bits, _ := n.Mask.Size(); bits > allLinkLocal && n.Contains(inner.AsSlice()) {
			return true
		}
	}
	return false
}
