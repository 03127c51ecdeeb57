package netstate

import (
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A permanent neighbour of the operator's, in whose place one of ours comes, is remembered among the sysctls, as
// neigh/DEVICE/ADDR and its MAC, and put back when ours goes: who has those may have no others there (arp off).

// lastingWord begins what is remembered of those.
const lastingWord = "neigh/"

func (n neighbour) key() string { return lastingWord + n.dev + "/" + n.addr.String() }

// others is the MAC of a permanent neighbour of somebody else's in n's place, "": there is none. It lists them once per
// operation.
func (k *kernel) others(n neighbour) (string, error) {
	if k.lasting == nil {
		all := map[string]string{}
		for _, fam := range families() {
			if err := k.readLasting(fam, all); err != nil {
				return "", err
			}
		}
		k.lasting = all
	}
	return k.lasting[n.key()], nil
}

func (k *kernel) readLasting(fam int, into map[string]string) error {
	msgs, err := listNeighbours(fam, 0)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		n, err := netlink.NeighDeserialize(m)
		if err != nil || n.State&unix.NUD_PERMANENT == 0 || len(n.HardwareAddr) != 6 || marked(m) {
			continue
		}
		addr, ok := netip.AddrFromSlice(n.IP)
		link, err := k.at(n.LinkIndex)
		if ok && err == nil { // else it has gone
			into[neighbour{dev: link.Attrs().Name, addr: addr.Unmap()}.key()] = n.HardwareAddr.String()
		}
	}
	return nil
}

// putBack gives the operator's neighbour back its place, unless its device has gone or another is there by now.
func putBack(key, mac string) error {
	dev, text, _ := strings.Cut(strings.TrimPrefix(key, lastingWord), "/")
	addr, err := netip.ParseAddr(text)
	hardware, err2 := net.ParseMAC(mac)
	if err != nil || err2 != nil {
		return nil //nolint:nilerr // it is not ours
	}
	link, err := netlink.LinkByName(dev)
	if err == nil {
		err = netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: family(addr), State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: hardware})
	}
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return wrap(gone(err), "put neighbour %s of %s back", addr, dev)
}
