package netstate

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// used says whether the bridge is some guest's already, and its MAC pinned.
func used(states map[string]State, bridge string) bool {
	for _, s := range states {
		if s.Bridge == bridge && !s.Empty() {
			return true
		}
	}
	return false
}

// bridgeMAC returns the bridge's MAC, pinned when asked: a bridge without a MAC of
// its own takes the lowest of its ports, and would change it with the next tap.
func (k *kernel) bridgeMAC(name string, pin bool) (net.HardwareAddr, error) {
	link, err := k.link(name)
	if err != nil {
		return nil, err
	}
	if link.Type() != "bridge" {
		return nil, fmt.Errorf("device %s: is no bridge but %s", name, link.Type())
	}
	if pin {
		err = pinMAC(link)
	}
	return link.Attrs().HardwareAddr, wrap(err, "pin MAC of bridge %s", name)
}

// pinMAC makes the MAC that a bridge has its own. The kernel forgets all neighbours there whenever one is set, also
// those that the operator made permanent, which are put back: in the same call, which a process that is killed has done
// as a whole, or not at all.
func pinMAC(bridge netlink.Link) error {
	lasting, err := permanentNeighbours(bridge.Attrs().Index)
	if err != nil {
		return err
	}
	pin := nl.NewNetlinkRequest(unix.RTM_SETLINK, 0)
	link := nl.NewIfInfomsg(unix.AF_UNSPEC)
	link.Index = int32(bridge.Attrs().Index) //nolint:gosec // an index fits
	pin.AddData(link)
	pin.AddData(nl.NewRtAttr(unix.IFLA_ADDRESS, bridge.Attrs().HardwareAddr))
	return executeTogether(append([]*nl.NetlinkRequest{pin}, lasting...))
}

// executeTogether has the kernel carry requests out one after the other in one call, each whatever comes of those
// before it. The error is of the first that fails.
func executeTogether(reqs []*nl.NetlinkRequest) error {
	var all []byte
	for i, req := range reqs {
		req.Flags &^= unix.NLM_F_ACK // what fails is answered all the same, and the answers of so many would not find room
		if i == len(reqs)-1 {
			req.Flags |= unix.NLM_F_ACK
		}
		all = append(all, req.Serialize()...) //nolint:misspell // the library spells it so
		all = append(all, make([]byte, -len(all)&(unix.NLMSG_ALIGNTO-1))...)
	}
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, len(all)+4096); err != nil { // the kernel takes some of it
		return err
	}
	if err := unix.Sendto(s.GetFd(), all, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	last := reqs[len(reqs)-1].Seq
	for {
		answers, _, err := s.Receive()
		if err != nil {
			return err
		}
		for _, m := range answers {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
				continue
			}
			if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 { //nolint:gosec // a negative errno
				return unix.Errno(-code)
			}
			if m.Header.Seq == last {
				return nil
			}
		}
	}
}

// lastingAttrs are what makes a permanent neighbour, by linux/neighbour.h.
var lastingAttrs = []uint16{netlink.NDA_DST, netlink.NDA_LLADDR, netlink.NDA_PROTOCOL, netlink.NDA_FLAGS_EXT}

// permanentNeighbours are requests, each of which makes one of the device's permanent neighbours as it is.
func permanentNeighbours(index int) ([]*nl.NetlinkRequest, error) {
	var all []*nl.NetlinkRequest
	for _, fam := range families() {
		msgs, err := listNeighbours(fam, 0)
		if err != nil {
			return nil, err
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
			req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
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
