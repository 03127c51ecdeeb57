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

// Own are the addresses by which this host may be the router of guests at a bridge itself, in order. What it has on
// another link says nothing of this one where it is of the link alone (RFC 4007 §4), nor what it does not use, as
// another has it (RFC 4862 §5.4.5).
func Own(bridge string) ([]netip.Addr, error) { return newKernel().own(bridge) }

func (k *kernel) own(bridge string) (own []netip.Addr, err error) {
	index := 0
	if link, err := k.link(bridge); err == nil {
		index = link.Attrs().Index
	}
	all, err := dump.Addrs(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		addr, _ := netip.AddrFromSlice(a.IP)
		addr = addr.Unmap()
		elsewhere := addr.IsLinkLocalUnicast() && addr.Is6() && a.LinkIndex != index
		if !elsewhere && a.Flags&unix.IFA_F_DADFAILED == 0 {
			own = append(own, addr)
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return slices.Compact(own), nil
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

// answered are what it answers everybody for, where the guest has routers: its own addresses, and such routers that are
// other guests, away from here or about to be: their flip changes no rule of this one, and until then they are reached
// by the host as well as by their own answer.
func (k *kernel) answered(s State, states map[string]State) ([]netip.Addr, error) {
	routers := s.routers()
	if len(routers) == 0 {
		return nil, nil
	}
	all, err := k.own(s.Bridge)
	for _, other := range states {
		for _, a := range other.Away {
			if slices.Contains(routers, a.Addr) {
				all = append(all, a.Addr)
			}
		}
	}
	return all, err
}
