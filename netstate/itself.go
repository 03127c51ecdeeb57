package netstate

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
)

// Who visits may bring a router along that is this host itself: its own, as the guest only goes from one host of its
// subnet to another, or one of the same address, such as fe80::1. For that the host answers everybody.

// Itself are the routers for which states have the host answer, and that it is itself just now, in order.
func Itself(states []State) ([]netip.Addr, error) {
	var all []netip.Addr
	k := newKernel()
	for _, s := range states {
		own, err := k.itself(s)
		if err != nil {
			return nil, fmt.Errorf("look for the routers of guest %s: %w", s.Guest, err)
		}
		all = append(all, own...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// routers are those for which the host answers the guest.
func (s State) routers() (all []netip.Addr) {
	for _, v := range s.Visiting {
		if v.Gateway.IsValid() && !v.AtHome() {
			all = append(all, v.Gateway.WithZone(""))
		}
	}
	for _, o := range s.OffLink {
		all = append(all, o.Routers...)
	}
	return all
}

// itself are those of the guest's routers that this host is. What it has on another link says nothing of this one where
// it is of the link alone (RFC 4007 §4), nor what it does not use, as another has it (RFC 4862 §5.4.5).
func (k *kernel) itself(s State) (own []netip.Addr, err error) {
	routers := s.routers()
	if len(routers) == 0 {
		return nil, nil
	}
	index := 0
	if bridge, err := k.link(s.Bridge); err == nil {
		index = bridge.Attrs().Index
	}
	all, err := dump.Addrs(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		addr, _ := netip.AddrFromSlice(a.IP)
		addr = addr.Unmap()
		elsewhere := addr.IsLinkLocalUnicast() && addr.Is6() && a.LinkIndex != index
		if slices.Contains(routers, addr) && !elsewhere && a.Flags&unix.IFA_F_DADFAILED == 0 {
			own = append(own, addr)
		}
	}
	return own, nil
}

// answered are those for which it answers everybody: those that it is itself, and other guests that are away from here.
func (k *kernel) answered(s State, states map[string]State) ([]netip.Addr, error) {
	routers := s.routers()
	if len(routers) == 0 {
		return nil, nil
	}
	all, err := k.itself(s)
	for _, other := range states {
		for _, a := range other.Away {
			if slices.Contains(routers, a.Addr) {
				all = append(all, a.Addr)
			}
		}
	}
	return all, err
}
