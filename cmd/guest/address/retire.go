package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// keepTables is added to a NIC's table for the addresses that it keeps for others.
const keepTables = 1000

// Retire takes addresses from a NIC; see guest.Retire. On an error some of it may
// be done, in the order given there: calling again completes it. Nothing is done where
// it is guest.ErrBound.
func (b *Book) Retire(p guest.Retire) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, err := linkByMAC(p.MAC)
	if err != nil {
		return err
	}
	var rtt time.Duration
	if !p.Keep {
		if rtt, err = noneBound(p.Addrs); err != nil {
			return err
		}
	}
	if err := b.withdraw(p.Addrs, p.EndpointIDs, p.Keep); err != nil {
		return err
	}
	time.Sleep(lastAnswers(rtt))
	if p.NewMAC != "" {
		if err := b.takeOver(p); err != nil {
			return err
		}
	} else if p.Keep {
		return errors.New("retire: keeping addresses needs new_mac")
	}
	if !p.Keep {
		if err := b.keepNoMore(p); err != nil {
			return err
		}
	}
	if !p.Stay {
		b.note(old, p.Addrs) // before its last address of IPv4 goes, and the kernel takes all routes
	}
	if err := b.leave(old, p); err != nil || p.Stay {
		return err
	}
	if err := b.linger(old, p); err != nil {
		return err
	}
	return b.forget(old)
}

// keepNoMore is for addresses that nobody needs any more, and that a call before was to keep: a handover that is tried
// again may find it so. The NIC that took them over has none of them then, and none lingers for them.
func (b *Book) keepNoMore(p guest.Retire) error {
	links, err := dump.Links()
	if err != nil {
		return fmt.Errorf("list NICs: %w", err)
	}
	kept, err := led(p.Addrs)
	if err != nil {
		return err
	}
	if hardware, bad := net.ParseMAC(p.NewMAC); bad == nil {
		if link := nicAmong(links, hardware.String()); link != nil {
			for _, addr := range kept {
				if err := dropAddr(link, addr); err != nil {
					return err
				}
			}
		}
	}
	return b.lingerNoMore(links, p.Addrs)
}

// leave takes addresses off the NIC that had them, unless they stay, or it lingers for them.
func (b *Book) leave(old netlink.Link, p guest.Retire) error {
	for _, addr := range p.Addrs {
		if !p.Keep {
			if err := unlead(addr); err != nil {
				return err
			}
		}
		if !p.Keep || !p.Stay && !b.mayLinger(p, addr) {
			if err := dropAddr(old, addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget takes a NIC down, unless it lingers, and knows nothing of its addresses any more.
func (b *Book) forget(old netlink.Link) error {
	mac := old.Attrs().HardwareAddr.String()
	b.dropNoted(old) // also where the guest keeps addresses of NICs that are down (keep_addr_on_down)
	if _, ok := b.lingers[mac]; !ok {
		if err := b.takeDown(old); err != nil {
			return err
		}
	}
	delete(b.nics, mac)
	return nil
}

// lastAnswers is how long a NIC stays up after the last subflow on it is gone, whose slowest had
// that RTT, smoothed: peers answer its last packets, and what comes to a NIC that is down is lost.
func lastAnswers(rtt time.Duration) time.Duration {
	if rtt == 0 {
		return 0
	}
	return min(rtt+rtt/2+20*time.Millisecond, time.Second)
}

// Close is for a machine that is about to end: what is under way is finished, nothing is
// done after it, and every NIC is down. A NIC that is up when the kernel shuts its devices
// down can lock the machine up: the queues of virtio devices are broken then, and
// virtnet_poll_cleantx looks into one for ever, in an interrupt, for packets that had just
// been sent (Linux 0d0eff39ceb3 mends it; older kernels that break queues lack that).
func (b *Book) Close() error {
	b.mu.Lock() // for good
	links, err := dump.Links()
	for _, link := range links {
		if link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		if derr := netlink.LinkSetDown(link); derr != nil {
			err = errors.Join(err, fmt.Errorf("set %s down: %w", link.Attrs().Name, derr))
		}
	}
	return err
}

// takeOver moves what must live on to the new NIC: the main route, if it still
// leads out of the old one, and the addresses to keep.
func (b *Book) takeOver(p guest.Retire) error {
	link, err := linkByMAC(p.NewMAC)
	if err != nil {
		return err
	}
	n, ok := b.nics[link.Attrs().HardwareAddr.String()]
	if !ok {
		return fmt.Errorf("retire: %s is not configured", p.NewMAC)
	}
	if err := b.widen(link.Attrs().HardwareAddr.String()); err != nil {
		return err
	}
	if err := b.mainBy(link, n); err != nil {
		return err
	}
	b.giveBack(link, n)
	if !p.Keep {
		return nil
	}
	if slices.ContainsFunc(p.Addrs, netip.Addr.Is6) { // it may have had IPv4 alone until now, as its site has
		path := filepath.Join("/proc/sys/net/ipv6/conf", link.Attrs().Name, "disable_ipv6")
		if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
			return fmt.Errorf("turn IPv6 on: %w", err)
		}
	}
	table := p.KeepTable
	if table == 0 {
		table = keepTables + n.table
	}
	for _, addr := range p.Addrs {
		by := nic{gateways: []netip.Addr{p.KeepGatewayV4, p.KeepGatewayV6}}
		if !by.gateway(familyOf(addr)).IsValid() {
			by = n
		}
		if err := lead(link, addr, table, by); err != nil {
			return fmt.Errorf("keep %s on %s: %w", addr, link.Attrs().Name, err)
		}
		if err := place(link, host(addr), table); err != nil {
			return fmt.Errorf("keep %s on %s: %w", addr, link.Attrs().Name, err)
		}
	}
	if err := awaitUsable(link, hosts(p.Addrs)); err != nil {
		return fmt.Errorf("keep addresses on %s: %w", link.Attrs().Name, err)
	}
	announce(link, hosts(p.Addrs))
	return nil
}

func hosts(addrs []netip.Addr) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, addr := range addrs {
		prefixes = append(prefixes, host(addr))
	}
	return prefixes
}

// Drop removes addresses from every NIC, with their endpoints and source routes.
func (b *Book) Drop(addrs []netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	links, err := dump.Links()
	if err != nil {
		return fmt.Errorf("list NICs: %w", err)
	}
	if err := b.withdraw(addrs, nil, false); err != nil {
		return err
	}
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	if err := dropTakenIn(addrs); err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := unlead(addr); err != nil {
			return err
		}
		for _, link := range links {
			has := func(a netlink.Addr) bool { return a.LinkIndex == link.Attrs().Index && a.IP.Equal(addr.AsSlice()) }
			if link.Attrs().Flags&unix.IFF_LOOPBACK != 0 || !slices.ContainsFunc(have, has) {
				continue // of hundreds of links, each of which would be looked at among thousands of addresses
			}
			if err := dropAddr(link, addr); err != nil {
				return err
			}
		}
	}
	if err := b.lingerNoMore(links, addrs); err != nil {
		return err
	}
	return b.idle(links, addrs)
}

// idle takes NICs down that were configured with some of addrs and have nothing left, so that they can be made ready
// again; but not one by which everything goes.
func (b *Book) idle(links []netlink.Link, addrs []netip.Addr) error {
	for mac, n := range b.nics {
		link := nicAmong(links, mac)
		if link == nil || !slices.ContainsFunc(n.addrs, func(p netip.Prefix) bool { return slices.Contains(addrs, p.Addr()) }) {
			continue
		}
		have, err := dump.Addrs(link, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		if slices.ContainsFunc(have, func(a netlink.Addr) bool { return !a.IP.IsLinkLocalUnicast() }) {
			continue
		}
		main, err := leadsOut(link)
		if err != nil {
			return err
		}
		if main {
			continue
		}
		if err := b.takeDown(link); err != nil {
			return err
		}
		delete(b.nics, mac)
	}
	return nil
}

// dropAddr takes an address from a link, whatever its prefix is there, and takes in nothing more that comes to it.
func dropAddr(link netlink.Link, addr netip.Addr) error {
	if addr.Is6() {
		if err := takeInNoMore(link, addr); err != nil {
			return err
		}
	}
	addrs, err := dump.Addrs(link, familyOf(addr))
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		if !a.IP.Equal(addr.AsSlice()) {
			continue
		}
		if err := dropAlone(link, a, addrs); err != nil {
			return fmt.Errorf("delete %s from %s: %w", addr, link.Attrs().Name, err)
		}
	}
	return nil
}

// dropAlone takes an address from a link that has addrs, and no other with it: the kernel takes those of IPv4 that came
// later to its subnet there, such as somebody else's, together with the first, unless it is told to have the next be
// that.
func dropAlone(link netlink.Link, a netlink.Addr, addrs []netlink.Addr) error {
	if slices.ContainsFunc(addrs, func(o netlink.Addr) bool { return a.IP.To4() != nil && o.Flags&unix.IFA_F_SECONDARY != 0 }) {
		setting := filepath.Join("/proc/sys/net/ipv4/conf", link.Attrs().Name, "promote_secondaries")
		if err := os.WriteFile(setting, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return nil
}
