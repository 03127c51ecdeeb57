package netstate

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"godwit/netstate/dump"
)

// tagOf is the VLAN that frames which we send out of device ourselves have to name; 0: none. It
// is the default one of a bridge that filters, which taps are in, where device is its trunk: a port
// that sends this VLAN tagged.
func tagOf(device string) (uint16, error) {
	link, err := netlink.LinkByName(device)
	if err != nil || link.Attrs().MasterIndex == 0 {
		return 0, err
	}
	master, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
	if err != nil {
		return 0, fmt.Errorf("look at the bridge of %s: %w", device, err)
	}
	bridge, ok := master.(*netlink.Bridge)
	if !ok || bridge.VlanFiltering == nil || !*bridge.VlanFiltering || bridge.VlanDefaultPVID == nil {
		return 0, nil
	}
	all, err := dump.Whole(netlink.BridgeVlanList)
	if err != nil {
		return 0, fmt.Errorf("list the VLANs of %s: %w", device, err)
	}
	for _, v := range all[int32(link.Attrs().Index)] { //nolint:gosec // an index fits
		if v.Vid == *bridge.VlanDefaultPVID && !v.EngressUntag() {
			return v.Vid, nil
		}
	}
	return 0, nil
}
