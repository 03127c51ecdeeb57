package netstate

import (
	"errors"
	"fmt"
	"slices"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// pinMAC makes the MAC that a bridge has its own. The kernel forgets all neighbours there whenever one is set, also
// those that the operator made permanent, which are put back.
func pinMAC(bridge netlink.Link) error {
	lasting, err := permanentNeighbours(bridge.Attrs().Index)
	if err != nil {
		return err
	}
	err = netlink.LinkSetHardwareAddr(bridge, bridge.Attrs().HardwareAddr)
	for _, n := range lasting {
		_, again := n.Execute(unix.NETLINK_ROUTE, 0)
		err = errors.Join(err, wrap(again, "put a permanent neighbour back"))
	}
	return err
}

// lastingAttrs are what makes a permanent neighbour, by linux/neighbour.h.
var lastingAttrs = []uint16{netlink.NDA_DST, netlink.NDA_LLADDR, netlink.NDA_PROTOCOL, netlink.NDA_FLAGS_EXT}

// permanentNeighbours are requests, each of which makes one of the device's permanent neighbours as it is.
func permanentNeighbours(index int) ([]*nl.NetlinkRequest, error) {
	var all []*nl.NetlinkRequest
	for _, fam := range families() {
		msgs, err := dump.Whole(func() ([][]byte, error) {
			req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
			req.AddData(&netlink.Ndmsg{Family: uint8(fam)})
			return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		})
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for _, m := range msgs {
			n, err := netlink.NeighDeserialize(m)
			if err != nil || n.LinkIndex != index || n.State&unix.NUD_PERMANENT == 0 {
				continue
			}
			attrs, err := nl.ParseRouteAttr(m[(&netlink.Ndmsg{}).Len():])
			if err != nil {
				return nil, fmt.Errorf("list neighbours: %w", err)
			}
			req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
			req.AddData(&netlink.Ndmsg{Family: uint8(fam), Index: uint32(index), State: unix.NUD_PERMANENT, Flags: uint8(n.Flags)}) //nolint:gosec // as they were read
			for _, a := range attrs {
				if slices.Contains(lastingAttrs, a.Attr.Type) {
					req.AddData(nl.NewRtAttr(int(a.Attr.Type), a.Value))
				}
			}
			all = append(all, req)
		}
	}
	return all, nil
}
