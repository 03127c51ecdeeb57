package tunnel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
)

// InnerTaken names a device of this namespace for whose addresses the inner ones of c would be mistaken, "" where there
// is none: another tunnel's, as they are derived and few, or what somebody else has of 169.254.0.0/16. An answer to an
// echo would then leave by the one of both that was made first.
func InnerTaken(c Config) (device string, err error) {
	addrs, err := dump.Addrs(nil, unix.AF_INET)
	if err != nil {
		return "", fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if !c.Meets(waysOf(a)) {
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

// InnerUsed is what devices of this namespace have of 169.254.0.0/16, most at most: the inner addresses of another
// tunnel that are not among it are InnerTaken by none.
func InnerUsed(most int) (used []netip.Prefix, err error) {
	addrs, err := dump.Addrs(nil, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		for _, way := range waysOf(a) {
			if len(used) < most && way.Overlaps(linkLocal) && !slices.Contains(used, way) {
				used = append(used, way)
			}
		}
	}
	return used, nil
}

// Meets says whether an inner address of c is among used.
func (c Config) Meets(used []netip.Prefix) bool {
	own, peer := c.Inner, c.PeerInner
	if !own.IsValid() || !peer.IsValid() {
		own, peer = InnerAddrs(c.Local, c.Remote)
	}
	return slices.ContainsFunc(used, func(p netip.Prefix) bool { return p.Contains(own) || p.Contains(peer) })
}

// linkLocal is what a device may have as a whole (RFC 3927): it has no host of its own then.
var linkLocal = netip.MustParsePrefix("169.254.0.0/16")

// waysOf are the addresses of a device with that one, and of its own ways there.
func waysOf(a netlink.Addr) (ways []netip.Prefix) {
	for _, n := range []*net.IPNet{a.IPNet, a.Peer} {
		if n == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP.To4())
		if !ok {
			continue
		}
		ways = append(ways, netip.PrefixFrom(ip, ip.BitLen()))
		if bits, _ := n.Mask.Size(); bits > linkLocal.Bits() && bits < ip.BitLen() {
			ways = append(ways, netip.PrefixFrom(ip, bits).Masked())
		}
	}
	return ways
}
