package netstate

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
)

// acceptRA stands for the routes that routers advertise to the host itself (RFC 4861 §6.3). One
// that becomes a router drops those that it has and takes no more, but on devices whose accept_ra
// is 2 (Documentation/networking/ip-sysctl): they are made so before that.
type acceptRA struct{}

func (acceptRA) ensure(k *kernel) error {
	for _, path := range k.listening {
		if err := writeSysctl(path, "2"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// remove does nothing: what was before is in the notebook, see restored.
func (acceptRA) remove(*kernel) error { return nil }

// own are devices by which a host may speak for itself. Others do where they have an address.
var own = []string{"device", "veth", "vlan", "bond", "team", "macvlan", "ipvlan"}

// acceptingRA lists accept_ra of the devices that take advertisements, and would not any more. old
// are the sysctls that were changed. Where the host forwards by its operator's will, there is none.
func acceptingRA(old map[string]string) ([]string, error) {
	on, err := readSysctl(forwarding6)
	if _, ours := old[forwarding6]; err != nil || on != "0" && !ours {
		return nil, err
	}
	links, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	addrs, err := dump.Addrs(nil, unix.AF_INET6)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var paths []string
	for _, l := range links {
		a := l.Attrs()
		speaks := slices.Contains(own, l.Type()) || slices.ContainsFunc(addrs, func(addr netlink.Addr) bool {
			return addr.LinkIndex == a.Index && addr.IP.IsGlobalUnicast()
		})
		bridged := slices.ContainsFunc(links, func(m netlink.Link) bool { return m.Attrs().Index == a.MasterIndex && m.Type() == "bridge" })
		if a.Flags&net.FlagLoopback != 0 || !speaks || bridged {
			continue
		}
		path := "ipv6/conf/" + a.Name + "/accept_ra"
		if now, err := readSysctl(path); err == nil && now == "1" { // else it has no IPv6, or has gone
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// restored puts accept_ra back on all devices, and says of which; not where others have the host go on forwarding, or it
// would lose the routes that it has.
func (acceptRA) restored(old map[string]string, theirs bool) (paths []string, err error) {
	for _, path := range sorted(old) {
		if !isAcceptRA(path) {
			continue
		}
		if !theirs {
			err = errors.Join(err, restore(path, old[path]))
		}
		paths = append(paths, path)
	}
	return paths, err
}

func isAcceptRA(path string) bool {
	return strings.HasPrefix(path, "ipv6/conf/") && strings.HasSuffix(path, "/accept_ra")
}
