package netstate

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// LeavesBy names the device by which packets from an address of this host leave for another; "": it has not that
// address, or no way there.
func LeavesBy(from, to netip.Addr) string {
	ways, err := netlink.RouteGetWithOptions(to.Unmap().AsSlice(), &netlink.RouteGetOptions{SrcAddr: from.Unmap().AsSlice()})
	if err != nil || len(ways) == 0 {
		return ""
	}
	device, err := netlink.LinkByIndex(ways[0].LinkIndex)
	if err != nil {
		return ""
	}
	return device.Attrs().Name
}
