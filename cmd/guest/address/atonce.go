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

// placeEarly gives the NIC its IPv4 addresses that no NIC has.
// (IPv6 would answer who asks for them: the guest's new host, which looks whether they are free.)
func (b *Book) placeEarly(m *made) error {
	have, err := dump.Addrs(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, prefix := range m.Addrs {
		addr := prefix.Addr()
		if !addr.Is4() || slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) }) {
			continue
		}
		m.early = append(m.early, addr)
		b.ready[m.link.Attrs().HardwareAddr.String()] = *m
		if err := place(m.link, host(addr), m.Table); err != nil {
			return err
		}
		if err := subnetRoute(m.link, prefix, m.Table); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes all ready that tells IPv4 peers of m's address. Where something is in the way, Configure
// looks at it again.
func (b *Book) prepare(m *made) {
	i := slices.IndexFunc(m.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() })
	existing, err := mptcp.Endpoints()
	if err != nil || m.Endpoint == 0 || i < 0 || !slices.Contains(m.early, m.Addrs[i].Addr()) || len(existing) > mptcp.MaxEndpoints-2 {
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
	m.endpoint, err = mptcp.Prepare(mptcp.Endpoint{ID: id, Addr: announced(m.Addrs, m.Announce)[i].Addr(), Dev: name, Flags: mptcp.FlagSignal})
	if err != nil {
		answers.Close()
		return
	}
	m.id, m.answers = id, answers
	b.receivers.Prepare()
	if m.crowd = sockets() >= manyAre; !m.crowd {
		b.crowd()
	}
}

// atOnce tells IPv4 peers of the address that the NIC has already, and has it answer who asks for that. It
// returns by which id; 0: they are not told yet, or by something that Configure is to look at.
func (b *Book) atOnce(m made, p guest.Configure) uint8 {
	if m.id == 0 {
		return 0
	}
	defer m.answers.Close()
	defer m.endpoint.Close()
	if p.Endpoint != m.Endpoint || !slices.Equal(p.Announce, m.Announce) {
		_ = b.untell(m) // who is told by another id believes that
		return 0
	}
	if m.told {
		b.receivers.Raise(firstFor) // that of Tell is over where much time has passed until it left
		return m.id
	}
	if _, err := m.answers.WriteString(answersForOwn); err != nil {
		return 0
	}
	tell := m.endpoint.Add
	if m.crowd {
		b.crowd()
		tell = func() error { return precedence.Behind(m.endpoint.Add) }
	} else {
		b.receivers.Raise(firstFor) // some of a hundred come before the last is told
	}
	if tell() != nil {
		return 0 // somebody else has made endpoints since
	}
	return m.id
}

// firstFor is how long packets come before what programs do in a guest that has just arrived. All that it does takes so long at
// first that the kernel leaves packets to a thread of theirs at once, which gets its share alone: joins, and what clients had to
// say meanwhile, were seen to wait there for 280 ms.
const firstFor = time.Second

// there says whether the NIC still had the addresses that it was given early, and gives it those that were taken
// away since: other programs of the guest may think that the NIC is theirs. It is asked once peers are told, who
// come a round trip later.
func there(m made) bool {
	all := true
	for _, addr := range m.early {
		if err := netlink.AddrAdd(m.link, &netlink.Addr{IPNet: ipNet(host(addr))}); !errors.Is(err, unix.EEXIST) {
			all = false
		}
	}
	return all
}

// narrow is a NIC that has addresses by themselves, without their subnets.
type narrow struct {
	link  netlink.Link
	addrs []netip.Prefix
}

// narrowed notes that the link has IPv4 addresses by themselves.
func (b *Book) narrowed(link netlink.Link, addrs []netip.Prefix) {
	if b.narrow == nil {
		b.narrow = make(map[string]narrow)
	}
	b.narrow[link.Attrs().HardwareAddr.String()] = narrow{link, addrs}
}

// widen gives the addresses that a NIC has by themselves, and has still, their subnets.
func (b *Book) widen(mac string) error {
	n, ok := b.narrow[mac]
	if !ok {
		return nil
	}
	have, err := dump.Addrs(n.link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, prefix := range n.addrs {
		if prefix.IsSingleIP() || !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(prefix.Addr().AsSlice()) }) {
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
