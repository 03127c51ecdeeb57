package address

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// given is an address that a NIC was given, or keeps for others, and by what its packets are led.
type given struct {
	prefix netip.Prefix
	table  int
	by     nic
}

// all is what a NIC was given.
func (n nic) all() []given {
	all := slices.Clone(n.kept)
	for _, prefix := range n.addrs {
		all = append(all, given{prefix, n.table, n})
	}
	return all
}

// gives says whether a NIC was given addr.
func (n nic) gives(addr netip.Addr) bool {
	return slices.ContainsFunc(n.all(), func(g given) bool { return g.prefix.Addr() == addr })
}

// without is the NIC when it was given none of addrs.
func (n nic) without(addrs []netip.Addr) nic {
	n.addrs = slices.DeleteFunc(slices.Clone(n.addrs), func(p netip.Prefix) bool { return slices.Contains(addrs, p.Addr()) })
	n.kept = slices.DeleteFunc(slices.Clone(n.kept), func(g given) bool { return slices.Contains(addrs, g.prefix.Addr()) })
	return n
}

// taken is an address that was taken from a NIC: whoever gives it back does not know that it is elsewhere, or another's.
type taken struct {
	mac  string
	addr netip.Addr
}

// mostTaken is how many are remembered, the last ones.
const mostTaken = 64

// leftOff notes that addrs were taken from a NIC.
func (b *Book) leftOff(mac string, addrs []netip.Addr) {
	if n, ok := b.nics[mac]; ok {
		b.nics[mac] = n.without(addrs)
	}
	for _, addr := range addrs {
		t := taken{mac, addr}
		b.taken = append(slices.DeleteFunc(b.taken, func(o taken) bool { return o == t }), t)
	}
	b.taken = b.taken[max(0, len(b.taken)-mostTaken):]
}

// isTaken says whether the NIC is to be without addr.
func (b *Book) isTaken(mac string, addr netip.Addr) bool {
	return slices.Contains(b.taken, taken{mac, addr}) && !b.nics[mac].gives(addr)
}

// held are the MACs of NICs that were given addresses, or from which some were taken.
func (b *Book) held() []string {
	all := slices.Collect(maps.Keys(b.nics))
	for _, t := range b.taken {
		all = append(all, t.mac)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mend puts back what others have taken away of what NICs were given, and takes from them what was taken, and says what
// that was. A NIC that somebody has set down, or made a part of something, is left alone, as is an address that is on
// another link than one of those now, or of a family that was turned off there.
func (b *Book) mend() (mended []string, err error) {
	all, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var links []netlink.Link
	own := make(map[int]bool)
	for _, mac := range b.held() {
		link := nicAmong(all, mac)
		if link == nil {
			continue
		}
		own[link.Attrs().Index] = true
		if over, err := partOf(link); err == nil && over == nil && link.Attrs().Flags&net.FlagUp != 0 {
			links = append(links, link)
		}
	}
	for _, link := range links {
		stripped, err := b.strip(link, have)
		mended = append(mended, stripped...)
		if err != nil {
			return mended, err
		}
	}
	if len(mended) > 0 {
		if have, err = dump.Addrs(nil, netlink.FAMILY_ALL); err != nil {
			return mended, fmt.Errorf("list addresses: %w", err)
		}
	}
	elsewhere := slices.DeleteFunc(slices.Clone(have), func(a netlink.Addr) bool { return own[a.LinkIndex] })
	for _, step := range []func(netlink.Link) ([]string, error){
		func(link netlink.Link) ([]string, error) { return b.putBack(link, have, elsewhere) },
		func(link netlink.Link) ([]string, error) { return b.lingerAgain(link, have) }, // after what takes its ways away
	} {
		for _, link := range links {
			said, err := step(link)
			mended = append(mended, said...)
			if err != nil {
				return mended, fmt.Errorf("%s: %w", link.Attrs().Name, err)
			}
		}
	}
	said, err := b.mainAgain(links, elsewhere, len(mended) > 0)
	return append(mended, said...), err
}

// on says whether addr is on link, by have.
func on(link netlink.Link, addr netip.Addr, have []netlink.Addr) bool {
	return slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.LinkIndex == link.Attrs().Index && a.IP.Equal(addr.AsSlice()) })
}

// strip takes from the link what was taken from it and is on it again. Where it lingers for an address of IPv4, or was
// made ready for one, it has that by itself.
func (b *Book) strip(link netlink.Link, have []netlink.Addr) (stripped []string, err error) {
	mac, index := link.Attrs().HardwareAddr.String(), link.Attrs().Index
	own := slices.DeleteFunc(slices.Clone(have), func(a netlink.Addr) bool { return a.LinkIndex != index })
	alone := b.ready[mac].early
	for _, prefix := range b.lingers[mac].addrs {
		alone = append(slices.Clone(alone), prefix.Addr())
	}
	for _, a := range own {
		addr, _ := netip.AddrFromSlice(a.IP)
		addr = addr.Unmap()
		ones, bits := a.Mask.Size()
		if !b.isTaken(mac, addr) || ones == bits && addr.Is4() && slices.Contains(alone, addr) {
			continue
		}
		if err := dropAlone(link, a, own); err != nil {
			return stripped, fmt.Errorf("delete %s from %s: %w", a.IPNet, link.Attrs().Name, err)
		}
		if err := b.dropRoutesBy(link, a.IPNet, familyOf(addr)); err != nil {
			return stripped, err
		}
		stripped = append(stripped, fmt.Sprintf("%s is on %s no more", a.IPNet, link.Attrs().Name))
	}
	return stripped, nil
}

// dropRoutesBy takes away the default routes by gateways of the subnet of an address that was taken from the link, but
// for ours: the NIC in use may be in that subnet. IPv6 has made them hops of ours where both have the same rank.
func (b *Book) dropRoutesBy(link netlink.Link, subnet *net.IPNet, family int) error {
	var ours netip.Addr
	if mac := link.Attrs().HardwareAddr.String(); mac == b.main {
		ours = b.nics[mac].gateway(family)
	}
	routes, err := routesOf(family, unix.RT_TABLE_MAIN)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var by []netlink.Route
	for _, r := range routes {
		hops := []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw}}
		if len(r.MultiPath) > 0 {
			hops = r.MultiPath
		}
		for _, hop := range hops {
			if isDefault(r) && hop.LinkIndex == link.Attrs().Index && subnet.Contains(hop.Gw) && !hop.Gw.Equal(ours.AsSlice()) {
				by = append(by, netlink.Route{Dst: r.Dst, LinkIndex: hop.LinkIndex, Gw: hop.Gw, Priority: r.Priority, Table: r.Table})
			}
		}
	}
	return dropRoutes(by)
}

// putBack gives the link what it lacks of what it was given.
func (b *Book) putBack(link netlink.Link, have, elsewhere []netlink.Addr) (back []string, err error) {
	mac := link.Attrs().HardwareAddr.String()
	for _, g := range b.nics[mac].all() {
		addr := g.prefix.Addr()
		has := on(link, addr, have)
		moved := !has && slices.ContainsFunc(elsewhere, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) })
		if moved || b.tookOver(mac, addr) || b.readies(addr) || addr.Is6() && turnedOff(link) {
			continue
		}
		if !has {
			if err := place(link, g.prefix, g.table); err != nil {
				return back, fmt.Errorf("%s: %w", g.prefix, err)
			}
			back = append(back, fmt.Sprintf("%s is on %s again", g.prefix, link.Attrs().Name))
		}
		led, err := leadAgain(link, g)
		if err != nil {
			return back, fmt.Errorf("%s: %w", addr, err)
		}
		if led {
			back = append(back, fmt.Sprintf("packets from %s are led out of %s again", addr, link.Attrs().Name))
		}
	}
	return back, nil
}

// tookOver says whether another NIC keeps addr, as that one is about to be without it.
func (b *Book) tookOver(mac string, addr netip.Addr) bool {
	for other, n := range b.nics {
		if other != mac && slices.ContainsFunc(n.kept, func(g given) bool { return g.prefix.Addr() == addr }) {
			return true
		}
	}
	return false
}

// readies says whether a NIC is made ready for addr, whose packets are led out of that already.
func (b *Book) readies(addr netip.Addr) bool {
	for _, m := range b.ready {
		if slices.ContainsFunc(m.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr }) {
			return true
		}
	}
	return false
}

// turnedOff says whether the link has no IPv6.
func turnedOff(link netlink.Link) bool {
	off, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", link.Attrs().Name, "disable_ipv6"))
	return err != nil || strings.TrimSpace(string(off)) != "0"
}

// leadAgain leads packets from g out of link where something of that is lacking.
func leadAgain(link netlink.Link, g given) (lacked bool, err error) {
	addr := g.prefix.Addr()
	rules, err := rulesFrom(addr)
	if err != nil {
		return false, err
	}
	routes, err := routesOf(familyOf(addr), g.table)
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.LinkIndex != link.Attrs().Index })
	if gateway := g.by.gateway(familyOf(addr)); gateway.IsValid() && !slices.ContainsFunc(routes, isDefault) {
		lacked = true
		err = defaultRoute(link, gateway, g.table)
	}
	subnet := func(r netlink.Route) bool { return r.Dst != nil && r.Dst.String() == g.prefix.Masked().String() }
	if err == nil && !g.prefix.IsSingleIP() && !slices.ContainsFunc(routes, subnet) {
		lacked = true
		err = subnetRoute(link, g.prefix, g.table)
	}
	if err == nil && !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == g.table }) {
		lacked = true
		err = leadFrom(addr, g.table)
	}
	return lacked, err
}

// lingerAgain has the link linger for what it lingered for.
func (b *Book) lingerAgain(link netlink.Link, have []netlink.Addr) (back []string, err error) {
	n := b.lingers[link.Attrs().HardwareAddr.String()]
	for _, prefix := range n.addrs {
		addr := prefix.Addr()
		rules, err := rulesFrom(addr)
		if err != nil {
			return back, err
		}
		lacks := !on(link, addr, have)
		for _, rule := range rules {
			routes, err := routesOf(familyOf(addr), rule.Table)
			if err != nil {
				return back, fmt.Errorf("list routes: %w", err)
			}
			lacks = lacks || !slices.ContainsFunc(routes, func(r netlink.Route) bool { return isDefault(r) && r.LinkIndex == link.Attrs().Index })
		}
		if !lacks {
			continue
		}
		if err := b.lingerAs(link, addr, n.gateway(familyOf(addr))); err != nil {
			return back, fmt.Errorf("linger for %s: %w", addr, err)
		}
		back = append(back, fmt.Sprintf("%s sends for %s again", link.Attrs().Name, addr))
	}
	return back, nil
}

// mainAgain has everything go by the gateways of the main NIC again where nothing leads anywhere, or that was taken away
// with what else was mended, and takes away what leads out of a NIC that is not in use.
func (b *Book) mainAgain(links []netlink.Link, elsewhere []netlink.Addr, mended bool) (back []string, err error) {
	link, n := nicAmong(links, b.main), b.nics[b.main]
	if link == nil || n.table == 0 {
		return nil, nil
	}
	spare := make(map[int]bool)
	for _, l := range links {
		if b.nics[l.Attrs().HardwareAddr.String()].table == 0 {
			spare[l.Attrs().Index] = true
		}
	}
	for _, gateway := range n.gateways {
		source := n.sourceBy(gateway)
		moved := slices.ContainsFunc(elsewhere, func(a netlink.Addr) bool { return a.IP.Equal(source.AsSlice()) })
		if !gateway.IsValid() || moved || gateway.Is6() && turnedOff(link) {
			continue
		}
		changed, err := mainRouteAgain(link, gateway, source, spare, mended)
		if err != nil {
			return back, err
		}
		if changed {
			back = append(back, fmt.Sprintf("everything goes by %s of %s again", gateway, link.Attrs().Name))
		}
	}
	return back, nil
}

// mainRouteAgain does so for a family. Another default route than ours is the guest's own choice.
func mainRouteAgain(link netlink.Link, gateway, source netip.Addr, spare map[int]bool, mended bool) (changed bool, err error) {
	routes, err := routesOf(familyOf(gateway), unix.RT_TABLE_MAIN)
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return !isDefault(r) })
	var strays []netlink.Route
	again, mainly := len(routes) == 0, false
	for _, r := range routes {
		switch {
		case slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return spare[hop.LinkIndex] }):
			again = true // of IPv6, which puts both together
		case spare[r.LinkIndex]:
			strays = append(strays, r)
		case r.LinkIndex == link.Attrs().Index:
			mainly = true
			again = again || mended && r.Src == nil && r.Gw.Equal(gateway.AsSlice()) // IPv6 forgets from where, with the address
		}
	}
	if again || !mainly && (mended || len(strays) == len(routes)) {
		ours := maps.Clone(spare)
		ours[link.Attrs().Index] = true
		return true, mainRoute(link, gateway, source, ours)
	}
	return len(strays) > 0, dropRoutes(strays)
}
