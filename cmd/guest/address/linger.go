package address

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// lingerMetric puts a default route behind every other of its table.
const lingerMetric = 4096

// known is what was last known of the NIC that retires: as the host says, as it is configured, or lingers.
// Somebody else configured it where the guest was adopted, and an earlier run of this program where that was started again.
func (b *Book) known(p guest.Retire) nic {
	hardware, err := net.ParseMAC(p.MAC)
	if err != nil {
		return nic{}
	}
	n, ok := b.nics[hardware.String()]
	if !ok {
		n = b.lingers[hardware.String()]
	}
	if p.GatewayV4.IsValid() && n.gateway(netlink.FAMILY_V4) != p.GatewayV4 { // it may be another by now
		n.gateways = append([]netip.Addr{p.GatewayV4}, n.gateways...)
	}
	return n
}

// mayLinger says whether the old NIC can go on sending for addr.
func (b *Book) mayLinger(p guest.Retire, addr netip.Addr) bool {
	return p.Keep && addr.Is4() && b.known(p).gateway(familyOf(addr)).IsValid()
}

// linger lets a NIC whose addresses are kept on the other one go on sending for them, by its
// own gateway, until nobody needs them: servers of QUIC, and others that answer each datagram
// from the address that it came to (IP_PKTINFO), name the NIC as well at which a client's first
// one came, for good. IPv4 takes that at its word: from a NIC that is down, has no route, or no
// address to ask its gateway's MAC with, nothing leaves. (IPv6 takes the other NIC.) What goes
// to the addresses comes by the other NIC, which alone answers for them.
func (b *Book) linger(link netlink.Link, p guest.Retire) error {
	n := b.known(p)
	if n.addrs = nil; !slices.ContainsFunc(p.Addrs, func(addr netip.Addr) bool { return b.mayLinger(p, addr) }) {
		return nil
	}
	if err := answer(link, answersNobody); err != nil {
		return err
	}
	for _, addr := range p.Addrs {
		if !b.mayLinger(p, addr) {
			continue
		}
		if err := b.lingerAs(link, addr, n.gateway(familyOf(addr))); err != nil {
			return fmt.Errorf("let %s linger for %s: %w", link.Attrs().Name, addr, err)
		}
		n.addrs = append(n.addrs, host(addr))
	}
	if b.lingers == nil {
		b.lingers = make(map[string]nic)
	}
	b.lingers[link.Attrs().HardwareAddr.String()] = n
	return nil
}

// Values of arp_ignore.
const (
	answersForOwn = "1" // for addresses of that NIC
	answersNobody = "8"
)

// answer says to whom the link answers who asks for an IPv4 address.
func answer(link netlink.Link, whom string) error {
	return os.WriteFile(answersOf(link.Attrs().Name), []byte(whom), 0o644)
}

// answersOf is where it is said to whom a link answers.
func answersOf(device string) string {
	return filepath.Join("/proc/sys/net/ipv4/conf", device, "arp_ignore")
}

// lingerAs leaves addr on the link without its subnet, which is elsewhere, and a route.
func (b *Book) lingerAs(link netlink.Link, addr, gateway netip.Addr) error {
	if err := addAddr(link, host(addr)); err != nil {
		return err
	}
	addrs, err := dump.Addrs(link, familyOf(addr))
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if ones, bits := a.Mask.Size(); a.IP.Equal(addr.AsSlice()) && ones != bits {
			if err := dropAlone(link, a, addrs); err != nil {
				return fmt.Errorf("delete %s: %w", a.IPNet, err)
			}
		}
	}
	rules, err := rulesFrom(addr)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if err := replaceRoute(netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), Gw: gateway.AsSlice(),
			Table: rule.Table, Priority: lingerMetric, Flags: int(netlink.FLAG_ONLINK),
		}); err != nil {
			return fmt.Errorf("route by %s in table %d: %w", gateway, rule.Table, err)
		}
	}
	return nil
}

// lingerNoLonger makes the link an ordinary NIC again, which answers for its addresses.
func (b *Book) lingerNoLonger(link netlink.Link) error {
	mac := link.Attrs().HardwareAddr.String()
	if _, ok := b.lingers[mac]; !ok {
		return nil
	}
	delete(b.lingers, mac)
	return answer(link, answersForOwn)
}

// lingerNoMore takes NICs down that lingered for addrs alone.
func (b *Book) lingerNoMore(links []netlink.Link, addrs []netip.Addr) error {
	for mac, n := range b.lingers {
		n.addrs = slices.DeleteFunc(slices.Clone(n.addrs), func(p netip.Prefix) bool { return slices.Contains(addrs, p.Addr()) })
		b.lingers[mac] = n
		if len(n.addrs) > 0 {
			continue
		}
		link := nicAmong(links, mac)
		if link == nil {
			delete(b.lingers, mac)
			continue
		}
		if _, ready := b.ready[mac]; ready {
			delete(b.lingers, mac)
			continue // it is about to be used, and answers nobody until then
		}
		if err := b.lingerNoLonger(link); err != nil {
			return err
		}
		if err := b.takeDown(link); err != nil {
			return err
		}
	}
	return nil
}
