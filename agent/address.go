package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// addressTries bounds how many addresses of the subnet are asked for on the LAN.
const addressTries = 64

// freeAddresses chooses an address of each family of this site's subnet that
// nobody answers for (RFC 5227, RFC 4862 §5.4) and no guest here holds or was promised,
// and promises it. Those that the guest comes with are none: nobody may answer for one now, where its home is
// off. want is tried alone where it is valid.
func (a *Agent) freeAddresses(ctx context.Context, want netip.Addr, guest string, comesWith []migration.Address) ([]migration.Address, error) {
	n := a.config.Network
	if n.PassesOver(want) {
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"next address %s: site %s has no router for it; name %s in the configuration of %s, or another address", want, a.config.Site, gatewayKey(want), a.config.Host)}
	}
	subnets := n.Subnets()
	if want.IsValid() && !slices.ContainsFunc(subnets, func(s config.Subnet) bool { return s.Prefix.Addr().Is4() == want.Is4() }) {
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"next address %s: site %s has no guests' subnet of its family; name another with --address", want, a.config.Site)}
	}
	out, errs := make([]migration.Address, len(subnets)), make([]error, len(subnets))
	var all sync.WaitGroup // each asks the LAN for a while
	for i, subnet := range subnets {
		all.Go(func() {
			addr, err := a.freeAddress(ctx, subnet, seeker{guest, want, bare(comesWith)})
			if errs[i] = err; err != nil {
				return
			}
			out[i] = migration.Address{
				Prefix: netip.PrefixFrom(addr, subnet.Prefix.Bits()), Gateway: subnet.Gateway, Home: a.config.Host, Public: n.Seen(addr),
			}
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// seeker is a guest that is to have an address here.
type seeker struct {
	guest     string
	want      netip.Addr   // zero: any
	comesWith []netip.Addr // none of these: they are its old ones
}

// freeAddress chooses an address of one subnet, and promises it to the guest.
func (a *Agent) freeAddress(ctx context.Context, subnet config.Subnet, by seeker) (netip.Addr, error) {
	if by.want.IsValid() && by.want.Is4() == subnet.Prefix.Addr().Is4() {
		if err := a.mayHave(subnet, by); err != nil {
			return netip.Addr{}, err
		}
		return by.want, a.probeAddress(ctx, by.want, by.guest)
	}
	candidates, last := a.candidates(subnet, by)
	for _, addr := range a.vacated.last(by.guest, candidates) {
		if last = a.probeAddress(ctx, addr, by.guest); last == nil {
			return addr, nil
		}
	}
	return netip.Addr{}, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
		"next address for guest %s: none is free in %s of site %s, the last tried: %v; free one or name one with --address", by.guest, subnet.Prefix, a.config.Site, last)}
}

// mayHave refuses an address that was asked for, where no guest can have it, or this one brings it along.
func (a *Agent) mayHave(subnet config.Subnet, by seeker) error {
	refuse := func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("next address %s: ", by.want) + fmt.Sprintf(format, args...)}
	}
	if !subnet.Prefix.Contains(by.want) {
		return refuse("not in the guests' subnet %s of site %s", subnet.Prefix, a.config.Site)
	}
	if what := notForGuests(subnet, by.want); what != "" {
		return refuse("it is %s of the guests' subnet %s of site %s; name another with --address", what, subnet.Prefix.Masked(), a.config.Site)
	}
	if slices.Contains(by.comesWith, by.want) {
		return refuse("guest %s comes with it, as one of its old addresses; name another with --address", by.guest)
	}
	return nil
}

// candidates are the first addresses of subnet that the guest may get, as far as is known without asking the LAN: those of
// guests here are no tries, as a host may have more of them. The error is what was passed over last.
func (a *Agent) candidates(subnet config.Subnet, by seeker) (out []netip.Addr, last error) {
	a.promised.mu.Lock()
	others := a.spokenFor(by.guest)
	a.promised.mu.Unlock()
	last = fmt.Errorf("none, as network.first is %d", a.config.Network.First)
	for addr := hostPart(subnet.Prefix, a.config.Network.First); subnet.Prefix.Contains(addr) && len(out) < addressTries; addr = addr.Next() {
		if owner, taken := others[addr]; taken {
			last = hasIt(addr, owner)
		} else if notForGuests(subnet, addr) == "" && !slices.Contains(by.comesWith, addr) {
			out = append(out, addr)
		}
	}
	return out, last
}

// notForGuests is what an address of subnet is that no guest may have, whoever answers for it: nobody
// does for the first and the last of IPv4, and a router may be silent just now. "": it is none of these.
func notForGuests(subnet config.Subnet, addr netip.Addr) string {
	pair := addr.BitLen()-subnet.Prefix.Bits() < 2 // both are for hosts, RFC 3021
	switch {
	case addr == subnet.Gateway:
		return "the router"
	case pair || !addr.Is4():
		return ""
	case addr == subnet.Prefix.Masked().Addr():
		return "the network's own address"
	case !subnet.Prefix.Contains(addr.Next()):
		return "the broadcast address"
	}
	return ""
}

// probeAddress promises addr to the guest, or says who has it, as an error.
func (a *Agent) probeAddress(ctx context.Context, addr netip.Addr, guest string) (err error) {
	if err := a.promise(addr, guest); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.promised.release(guest, addr)
		}
	}()
	used, by, err := netstate.Probe(ctx, a.config.Network.Bridge, addr)
	if err != nil {
		return fmt.Errorf("probe address %s: %w", addr, err)
	}
	if used {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"next address %s: in use on site %s by %s; free it or name another with --address", addr, a.config.Site, by)}
	}
	return nil
}

// takenAddresses are those that guests here hold, have not given up, are coming with, or left
// for a tunnel.
func (a *Agent) takenAddresses() map[netip.Addr]string {
	out := a.guests.expected()
	for _, g := range a.guests.all() {
		for _, addr := range g.held().Addresses {
			out[addr.Prefix.Addr()] = g.name()
		}
		a.notGivenUp(g.held(), out)
	}
	for _, d := range a.detours.List("") {
		for _, addr := range d.Addresses() {
			out[addr] = d.Guest
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range a.incoming {
		for _, addr := range in.plan.Next {
			out[addr.Prefix.Addr()] = in.plan.Guest
		}
	}
	return out
}

// lacksIPv6 says that the guest has turned IPv6 off: for all of its NICs, and it has no such
// address. One that comes from a site without IPv6 may have it off for the NIC in use.
func lacksIPv6(info guest.Info, nics []config.NIC, held []migration.Address) bool {
	off := 0
	for _, nic := range nics {
		if slices.ContainsFunc(info.NICs, func(n guest.NIC) bool { return n.NoIPv6 && !n.Above && strings.EqualFold(n.MAC, nic.MAC) }) {
			off++
		}
	}
	return off == len(nics) && !slices.ContainsFunc(held, func(addr migration.Address) bool { return addr.Prefix.Addr().Is6() })
}

// settleAnnounced refuses what announceable does, but where network auto has become drain already, as no connection could follow
// anyway: then nobody is told of the next addresses.
func (m *outgoing) settleAnnounced() error {
	refused := announceable(m.plan, m.work.capabilities)
	if refused == nil || m.plan.Network != "drain" {
		return refused
	}
	m.plan.Chosen, m.plan.Next = false, slices.Clone(m.plan.Next)
	for i := range m.plan.Next {
		m.plan.Next[i].Endpoint = 0
	}
	m.rec.Note("its next address is behind a NAT, and the program behind its channel cannot announce what clients see of it: what opens as MPTCP before the switch does not follow, after all, and stays on the tunnel")
	return nil
}

// announceable refuses next addresses behind a NAT of which the guest could only
// announce its own side: no client would come.
func announceable(plan migration.Plan, capabilities []string) error {
	for _, next := range plan.Next {
		if next.Public.IsValid() && next.Endpoint != 0 && !slices.Contains(capabilities, guest.CapAnnounce) {
			return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf(
				"migrate guest %s: its next address %s is behind a NAT, and the program behind its channel cannot announce %s instead; use --network drain or tunnel",
				plan.Guest, next.Prefix.Addr(), next.Public)}
		}
	}
	return nil
}

// hostPart is the n-th address of subnet.
func hostPart(subnet netip.Prefix, n uint32) netip.Addr {
	addr := subnet.Masked().Addr()
	bytes := addr.AsSlice()
	for i := len(bytes) - 1; i >= 0 && n > 0; i-- {
		sum := uint32(bytes[i]) + n&0xff
		bytes[i] = byte(sum)
		n = n>>8 + sum>>8
	}
	out, _ := netip.AddrFromSlice(bytes)
	return out
}

// nextEndpoint is the first id of a fresh pair of MPTCP endpoint ids, after id. They
// are one byte; after 240 they begin again, when the first are long forgotten.
func nextEndpoint(id uint8) uint8 {
	if id >= 240 {
		return 1
	}
	return id + 1 + id%2
}
