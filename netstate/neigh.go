package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A neighbour is a permanent entry ADDR → MAC on a device.
type neighbour struct {
	dev  string
	addr netip.Addr
	mac  string
}

func (n neighbour) ensure(k *kernel) error {
	mac, err := net.ParseMAC(n.mac)
	if err == nil {
		err = k.neigh(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, n.dev, n.addr, unix.NUD_PERMANENT, 0, mac)
	}
	return wrap(err, "set neighbour %s of %s", n.addr, n.dev)
}

func (n neighbour) remove(k *kernel) error {
	return wrap(gone(k.neigh(unix.RTM_DELNEIGH, 0, n.dev, n.addr, 0, 0, nil)), "delete neighbour %s of %s", n.addr, n.dev)
}

// A proxy is an address that the host answers ARP or NDP for on a device.
type proxy struct {
	dev    string
	addr   netip.Addr
	router bool // answer as a router does (RFC 4861 §4.4, R flag)
}

func (p proxy) ensure(k *kernel) error {
	var flags uint8 = unix.NTF_PROXY
	if p.router && p.addr.Is6() {
		flags |= unix.NTF_ROUTER
	}
	err := k.neigh(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, p.dev, p.addr, unix.NUD_PERMANENT, flags, nil)
	return wrap(err, "set proxy neighbour %s of %s", p.addr, p.dev)
}

func (p proxy) remove(k *kernel) error {
	err := k.neigh(unix.RTM_DELNEIGH, 0, p.dev, p.addr, 0, unix.NTF_PROXY, nil)
	return wrap(gone(err), "delete proxy neighbour %s of %s", p.addr, p.dev)
}

// A forwarding entry binds a MAC to a bridge port, so that frames for a guest
// that has not spoken yet are not flooded to every port. The bridge moves it to the port
// where that MAC is heard.
type forwarding struct {
	tap string
	mac string
}

func (f forwarding) entry(k *kernel) (*netlink.Neigh, error) {
	link, err := k.link(f.tap)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(f.mac)
	return &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, State: unix.NUD_NOARP, Flags: unix.NTF_MASTER, HardwareAddr: mac}, err
}

func (f forwarding) ensure(k *kernel) error {
	e, err := f.entry(k)
	if err == nil {
		err = netlink.NeighSet(e)
	}
	return wrap(err, "set forwarding entry %s on %s", f.mac, f.tap)
}

func (f forwarding) remove(k *kernel) error {
	e, err := f.entry(k)
	if err == nil {
		err = netlink.NeighDel(e)
	}
	if errors.Is(err, unix.EOPNOTSUPP) { // it is no bridge's port any more, whose entries went with that
		err = nil
	}
	return wrap(gone(err), "delete forwarding entry %s on %s", f.mac, f.tap)
}

func (k *kernel) neigh(kind, flags int, dev string, addr netip.Addr, state uint16, ntf uint8, mac net.HardwareAddr) error {
	link, err := k.link(dev)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{Family: uint8(family(addr)), Index: uint32(link.Attrs().Index), State: state, Flags: ntf})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, addr.AsSlice()))
	if mac != nil {
		req.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, mac))
	}
	if kind == unix.RTM_NEWNEIGH {
		req.AddData(nl.NewRtAttr(netlink.NDA_PROTOCOL, nl.Uint8Attr(Protocol)))
	}
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// ourNeighbours lists the entries that carry our mark.
func (k *kernel) ourNeighbours() ([]resource, error) {
	var found []resource
	for _, flags := range []uint8{0, unix.NTF_PROXY} {
		for _, fam := range families() {
			entries, err := k.dumpNeighbours(fam, flags)
			if err != nil {
				return nil, err
			}
			found = append(found, entries...)
		}
	}
	return found, nil
}

// listNeighbours are those of this namespace, as the messages of the kernel, which say who made each; flags: 0, or
// NTF_PROXY.
func listNeighbours(fam int, flags uint8) ([][]byte, error) {
	msgs, err := dump.Whole(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		req.AddData(&netlink.Ndmsg{Family: uint8(fam), Flags: flags})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	return msgs, nil
}

func (k *kernel) dumpNeighbours(fam int, flags uint8) ([]resource, error) {
	msgs, err := listNeighbours(fam, flags)
	if err != nil {
		return nil, err
	}
	var found []resource
	for _, m := range msgs {
		n, err := netlink.NeighDeserialize(m)
		if err != nil || !marked(m) {
			continue
		}
		addr, ok := netip.AddrFromSlice(n.IP)
		link, err := netlink.LinkByIndex(n.LinkIndex)
		if !ok || err != nil {
			continue
		}
		if flags == unix.NTF_PROXY {
			found = append(found, proxy{dev: link.Attrs().Name, addr: addr.Unmap()})
		} else {
			found = append(found, neighbour{dev: link.Attrs().Name, addr: addr.Unmap(), mac: n.HardwareAddr.String()})
		}
	}
	return found, nil
}

func marked(msg []byte) bool {
	attrs, err := nl.ParseRouteAttr(msg[(&netlink.Ndmsg{}).Len():])
	if err != nil {
		return false
	}
	for _, a := range attrs {
		if a.Attr.Type == netlink.NDA_PROTOCOL && len(a.Value) == 1 && a.Value[0] == Protocol {
			return true
		}
	}
	return false
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// gone forgives that what should be deleted is not there, or its device not.
func gone(err error) error {
	var lost netlink.LinkNotFoundError
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.As(err, &lost) {
		return nil
	}
	return err
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
