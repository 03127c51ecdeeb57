package record

import (
	"net/netip"
	"slices"

	"godwit/migration"
	"godwit/vm/guest"
)

// A guest may have NICs that no migration of it touches, and connections of MPTCP that work by these.

// besideIt is why one has moved, or needs no tunnel any more, that the next address has nothing to do with.
const besideIt = "by another NIC of the guest, which the move leaves as it is"

// worksOn is what a connection works by of some addresses; nil: nothing.
func worksOn(c guest.Connection, is func(netip.Addr) bool) *netip.AddrPort {
	if i := slices.IndexFunc(c.Working, func(w netip.AddrPort) bool { return is(w.Addr()) }); i >= 0 {
		return &c.Working[i]
	}
	return nil
}

// FollowBeside moves on those that were tunnelled and work on beside, as in a Judge, and on none of the old addresses
// that stay.
func (s *Survival) FollowBeside(all []guest.Connection, stay []netip.Addr, beside map[netip.Addr]bool) {
	works := map[connectionKey]netip.AddrPort{}
	for _, c := range s.Left(all) {
		at := worksOn(c, func(addr netip.Addr) bool { return beside[addr] })
		if at != nil && worksOn(c, func(addr netip.Addr) bool { return slices.Contains(stay, addr) }) == nil {
			works[keyOf(c)] = *at
		}
	}
	for i := range s.Connections {
		c := &s.Connections[i]
		if now, ok := works[connectionKey{c.Kind, c.Local, c.Remote}]; ok {
			c.Fate, c.Why, c.Now = migration.Moved, besideIt, &now
		}
	}
	s.count()
}

// Left are those of a guest's connections of MPTCP that are tunnelled still.
func (s *Survival) Left(all []guest.Connection) (out []guest.Connection) {
	tunnelled := map[connectionKey]bool{}
	for _, c := range s.Connections {
		tunnelled[connectionKey{c.Kind, c.Local, c.Remote}] = c.Fate == migration.Tunnelled && c.Kind == guest.KindMPTCP
	}
	return slices.DeleteFunc(slices.Clone(all), func(c guest.Connection) bool { return !tunnelled[keyOf(c)] })
}

// mostBegan bounds by how many more addresses connections are asked for: a guest may say that each began on another.
const mostBegan = 32

// Begun are addrs, and those beside them on which these connections of MPTCP began: the guest may have such an address
// no more, or on a NIC that no migration touches, and what they work on by now may be none of addrs, as a next address
// that was meant for it and that it could not give up.
func Begun(addrs []netip.Addr, all []guest.Connection) []netip.Addr {
	out := slices.Clone(addrs)
	for _, c := range all {
		if c.Kind == guest.KindMPTCP && len(out) < len(addrs)+mostBegan && !slices.Contains(out, c.Local.Addr()) {
			out = append(out, c.Local.Addr())
		}
	}
	return out
}

// Began is Begun for those that were tunnelled at the last look.
func (s *Survival) Began(addrs []netip.Addr) []netip.Addr {
	var all []guest.Connection
	for _, c := range s.Connections {
		if c.Fate == migration.Tunnelled {
			all = append(all, guest.Connection{Kind: c.Kind, Local: c.Local})
		}
	}
	return Begun(addrs, all)
}
