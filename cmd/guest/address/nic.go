package address

import (
	"fmt"
	"net"
	"slices"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// A NIC is known by its MAC, which what lies over it has as well: a bridge takes that of a port, a VLAN its NIC's. The NIC
// is the device that its hypervisor made, and its addresses are those that it has itself. What lies over it, with the
// addresses there, is the guest's own affair; so is a NIC that is a part of that: nothing is given to it, and it is not
// set down when a move comes to nothing.

// liesAbove says whether a link is none itself and lies over others.
func liesAbove(link netlink.Link) bool { return slices.Contains(guest.KindsAbove, link.Type()) }

// nicAmong is the NIC of links that has the MAC, as net.HardwareAddr writes it; nil: none has.
func nicAmong(links []netlink.Link, mac string) (nic netlink.Link) {
	for _, link := range links {
		switch {
		case link.Attrs().HardwareAddr.String() != mac || liesAbove(link):
		case link.Type() == "device": // of a driver, and not of somebody who asked for one of its kind
			return link
		case nic == nil:
			nic = link
		}
	}
	return nic
}

func linkByMAC(mac string) (netlink.Link, error) {
	want, err := net.ParseMAC(mac)
	if err != nil {
		return nil, fmt.Errorf("find NIC: %w", err)
	}
	links, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	if link := nicAmong(links, want.String()); link != nil {
		return link, nil
	}
	return nil, fmt.Errorf("find NIC: no NIC has the MAC %s", mac)
}

// partOf is the device of which a NIC is a part, and which takes what comes in by it: a bridge, a bond. nil: it stands
// by itself.
func partOf(link netlink.Link) (netlink.Link, error) {
	master := link.Attrs().MasterIndex
	if master == 0 {
		return nil, nil
	}
	links, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == master && liesAbove(l) })
	if at < 0 {
		return nil, nil // another kind takes nothing, such as a VRF
	}
	return links[at], nil
}

// standsAlone is an error where the NIC is a part of something: nobody would get to an address of its own.
func standsAlone(link netlink.Link) error {
	over, err := partOf(link)
	if err != nil || over == nil {
		return err
	}
	return fmt.Errorf("it is a part of the %s %s, which takes what comes in by it; take it out of that", over.Type(), over.Attrs().Name)
}
