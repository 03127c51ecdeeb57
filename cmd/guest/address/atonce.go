package address

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"godwit/cmd/guest/precedence"
	"godwit/netstate/dump"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A guest that has just arrived is slow (without KVM each instruction that it had run before
// is translated anew), and peers come when they are told of its address, a round trip later. So what
// it takes to tell them is looked up, and done, before it leaves, as far as nobody notices.

// placeEarly gives the NIC its IPv4 addresses that no NIC has. What comes to those of IPv6 is taken in, and the NIC has
// them later: it would answer who asks for them, as the guest's new host does, which looks whether they are free.
func (b *Book) placeEarly(m *made) error {
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, prefix := range m.Addrs {
		addr := prefix.Addr()
		if slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) }) {
			continue
		}
		m.early = append(m.early, addr)
		b.ready[m.link.Attrs().HardwareAddr.String()] = *m
		if addr.Is6() {
			if _, err := takeIn(m.link, addr); err != nil {
				return err
			}
			continue
		}
		if err := place(m.link, host(addr), m.Table); err != nil {
			return err
		}
		if err := subnetRoute(m.link, prefix, m.Table); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes all ready that tells peers of m's addresses. Where something is in the way, Configure
// looks at it again.
func (b *Book) prepare(m *made) {
	existing, err := mptcp.Endpoints()
	if err != nil || m.Endpoint == 0 || len(existing) > mptcp.MaxEndpoints-2 {
		return
	}
	id, err := b.freePair(m.Endpoint, m.Addrs, existing)
	if err != nil {
		return
	}
	name := m.link.Attrs().Name
	answers, err := os.OpenFile(answersOf(name), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	m.id, m.answers = id, answers
	for _, e := range endpointsOf(name, announced(m.Addrs, m.Announce), id) {
		if i := slices.IndexFunc(m.Addrs, ofFamily(e.Addr)); !slices.Contains(m.early, m.Addrs[i].Addr()) {
			continue // it is for signal
		}
		prepared, err := mptcp.Prepare(e)
		if err != nil {
			break
		}
		m.words = append(m.words, word{endpoint: prepared})
	}
	if len(m.words) == 0 {
		answers.Close()
		m.id, m.answers = 0, nil
		return
	}
	b.receivers.Prepare()
	if m.crowd = sockets() >= manyAre; !m.crowd {
		b.crowd()
	}
}

// word is what peers are told of one address.
type word struct {
	endpoint *mptcp.Prepared
	said     bool
}

// say tells peers what they were not told yet.
func say(words []word) error {
	for i, w := range words {
		if w.said {
			continue
		}
		if err := w.endpoint.Add(); err != nil {
			return err
		}
		words[i].said = true
	}
	return nil
}

// told says whether peers were told of any of m's addresses.
func (m made) told() bool { return slices.ContainsFunc(m.words, func(w word) bool { return w.said }) }

// atOnce tells peers of the addresses that the NIC has already, or takes packets to, and has it answer who asks for
// those of IPv4. It returns by which ids; none: they are not told of all, or by something that Configure is to look at.
func (b *Book) atOnce(m made, p guest.Configure) (ids []uint8) {
	if m.id == 0 {
		return nil
	}
	defer m.closeWords()
	if p.Endpoint != m.Endpoint || !slices.Equal(p.Announce, m.Announce) {
		_ = b.untell(m) // who is told by another id believes that
		return nil
	}
	tell := func() error { return say(m.words) }
	if !m.told() {
		if _, err := m.answers.WriteString(answersForOwn); err != nil {
			return nil
		}
	}
	if m.crowd {
		b.crowd()
		tell = func() error { return precedence.Behind(func() error { return say(m.words) }) }
	} else {
		b.receivers.Raise(firstFor) // some of a hundred come before the last is told; that of Tell is over where much time has passed until it left
	}
	if tell() != nil {
		return nil // somebody else has made endpoints since
	}
	for _, w := range m.words {
		ids = append(ids, w.endpoint.Endpoint().ID)
	}
	if len(ids) < len(endpointsOf("", p.Addrs, m.id)) {
		return nil
	}
	return ids
}

// firstFor is how long packets come before what programs do in a guest that has just arrived. All that it does takes so
// long at first that the kernel leaves packets to a thread of theirs at once, which gets its share alone: joins, and
// what clients had to say meanwhile, were seen to wait there for 280 ms.
const firstFor = time.Second

// stillAlone is an error where the NIC is a part of something, also since it was made ready: all is taken back then, as
// nobody would get there.
func (b *Book) stillAlone(link netlink.Link, m made) error {
	if !m.whole {
		return standsAlone(link)
	}
	now, err := netlink.LinkByIndex(link.Attrs().Index)
	if err != nil {
		return nil //nolint:nilerr // it is gone, as is what it had with it, which is found then
	}
	if err := standsAlone(now); err != nil {
		mac := link.Attrs().HardwareAddr.String() // a bond gives the NIC its own
		b.ready[mac] = m
		delete(b.narrow, mac)
		return errors.Join(err, b.unready(mac), b.rest(now))
	}
	return nil
}

// there says whether the NIC still had the addresses that it was given early, their rules and routes, and gives it
// those that were taken away since: other programs of the guest may think that the NIC is theirs. It is asked once
// peers are told, who come a round trip later.
func there(m made) bool {
	all := true
	for _, addr := range m.early {
		if addr.Is6() {
			if was, err := takeIn(m.link, addr); !was || err != nil {
				all = false
			}
			continue
		}
		if err := netlink.AddrAdd(m.link, &netlink.Addr{IPNet: ipNet(host(addr))}); !errors.Is(err, unix.EEXIST) {
			all = false
		}
	}
	return leads(m) && all
}

// leads says whether what leads packets from m's addresses out of the NIC was there still, and leads them again: routes
// go with a NIC that is set down, and addresses of IPv4 stay; rules go with whoever has the guest's network made anew.
func leads(m made) bool {
	all := true
	for _, prefix := range m.Addrs {
		if !errors.Is(netlink.RuleAdd(ruleFrom(prefix.Addr(), m.Table)), unix.EEXIST) {
			all = false
		}
	}
	for _, gateway := range []netip.Addr{m.GatewayV4, m.GatewayV6} {
		if !gateway.IsValid() || !slices.ContainsFunc(m.Addrs, ofFamily(gateway)) {
			continue
		}
		route := everythingBy(m.link, gateway, m.Table)
		if gateway.Is6() {
			route.Flags = 0 // see defaultRoute
		}
		if !errors.Is(netlink.RouteAdd(&route), unix.EEXIST) {
			all = false
		}
	}
	return all
}

// narrow is a NIC that has addresses by themselves, without their subnets, or takes in what comes to them.
type narrow struct {
	link  netlink.Link
	addrs []netip.Prefix
}

// narrowed notes that the link has IPv4 addresses by themselves, and takes in what comes to those of IPv6.
func (b *Book) narrowed(link netlink.Link, addrs []netip.Prefix) {
	if b.narrow == nil {
		b.narrow = make(map[string]narrow)
	}
	b.narrow[link.Attrs().HardwareAddr.String()] = narrow{link, addrs}
}

// widen gives the addresses that a NIC has by themselves, and has still, their subnets. Those of IPv6 take in what
// comes to them by themselves from then on.
func (b *Book) widen(mac string) error {
	n, ok := b.narrow[mac]
	if !ok {
		return nil
	}
	have, err := dump.Addrs(n.link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, prefix := range n.addrs {
		has := slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(prefix.Addr().AsSlice()) })
		if prefix.Addr().Is6() {
			if err := takenOver(n.link, prefix, has); err != nil {
				return err
			}
			continue
		}
		if prefix.IsSingleIP() || !has {
			continue
		}
		if err := addAddr(n.link, prefix); err != nil {
			return err
		}
		if err := netlink.AddrDel(n.link, &netlink.Addr{IPNet: ipNet(host(prefix.Addr()))}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("delete %s by itself: %w", prefix.Addr(), err)
		}
	}
	delete(b.narrow, mac)
	return nil
}

// takenOver has an IPv6 address, where the NIC has it, take in itself what comes to it.
func takenOver(link netlink.Link, prefix netip.Prefix, has bool) error {
	if has {
		if err := awaitUsable(link, []netip.Prefix{prefix}); err != nil {
			return err
		}
	}
	return takeInNoMore(link, prefix.Addr())
}
