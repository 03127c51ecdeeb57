package addresses

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate"
)

// tries bounds how many addresses of the subnet are asked for on the LAN.
const tries = 64

// Free chooses an address of each family of this site's subnet that
// nobody answers for (RFC 5227, RFC 4862 §5.4) and no guest here holds or was promised,
// and promises it. Those that the guest comes with are none: nobody may answer for one now, where its home is
// off. want is tried alone where it is valid.
func (b *Book) Free(ctx context.Context, want netip.Addr, guest string, comesWith []netip.Addr) ([]migration.Address, error) {
	n := b.config.Network
	if n.PassesOver(want) {
		why := fmt.Sprintf("has no router for it; name %s in the configuration of %s, or another address", config.GatewayKey(want), b.config.Host)
		if n.IsItself(n.GatewayOf(want.Is4())) {
			why = fmt.Sprintf("has host %s itself for its router, and no guest with it could leave again; have another machine be its router, or name another address", b.config.Host)
		}
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("next address %s: site %s %s", want, b.config.Site, why)}
	}
	subnets := n.Subnets()
	if want.IsValid() && !slices.ContainsFunc(subnets, func(s config.Subnet) bool { return s.Prefix.Addr().Is4() == want.Is4() }) {
		return nil, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"next address %s: site %s has no guests' subnet of its family; name another with --address", want, b.config.Site)}
	}
	out, errs := make([]migration.Address, len(subnets)), make([]error, len(subnets))
	var all sync.WaitGroup // each asks the LAN for a while
	for i, subnet := range subnets {
		all.Go(func() {
			addr, err := b.FreeIn(ctx, subnet, Seeker{guest, want, comesWith})
			if errs[i] = err; err != nil {
				return
			}
			out[i] = migration.Address{
				Prefix: netip.PrefixFrom(addr, subnet.Prefix.Bits()), Gateway: subnet.Gateway, Home: b.config.Host, Public: n.Seen(addr),
			}
		})
	}
	all.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// Seeker is a guest that is to have an address here.
type Seeker struct {
	Guest     string
	Want      netip.Addr   // zero: any
	ComesWith []netip.Addr // none of these: they are its old ones
}

// FreeIn chooses an address of one subnet, and promises it to the guest.
func (b *Book) FreeIn(ctx context.Context, subnet config.Subnet, by Seeker) (netip.Addr, error) {
	if by.Want.IsValid() && by.Want.Is4() == subnet.Prefix.Addr().Is4() {
		if err := b.mayHave(subnet, by); err != nil {
			return netip.Addr{}, err
		}
		return by.Want, b.probe(ctx, by.Want, by.Guest)
	}
	candidates, last := b.candidates(subnet, by)
	for _, addr := range b.left.last(by.Guest, candidates) {
		if last = b.probe(ctx, addr, by.Guest); last == nil {
			return addr, nil
		}
		if !errors.As(last, new(*migration.Problem)) { // nobody could be asked who has it, nor could they of another
			return netip.Addr{}, fmt.Errorf("next address for guest %s: %w", by.Guest, last)
		}
	}
	return netip.Addr{}, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
		"next address for guest %s: none is free in %s of site %s, the last tried: %v; free one or name one with --address", by.Guest, subnet.Prefix, b.config.Site, last)}
}

// mayHave refuses an address that was asked for, where no guest can have it, or this one brings it along.
func (b *Book) mayHave(subnet config.Subnet, by Seeker) error {
	refuse := func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("next address %s: ", by.Want) + fmt.Sprintf(format, args...)}
	}
	if !subnet.Prefix.Contains(by.Want) {
		return refuse("not in the guests' subnet %s of site %s", subnet.Prefix, b.config.Site)
	}
	if what := NotForGuests(subnet, by.Want); what != "" {
		return refuse("it is %s of the guests' subnet %s of site %s; name another with --address", what, subnet.Prefix.Masked(), b.config.Site)
	}
	if slices.Contains(by.ComesWith, by.Want) {
		return refuse("guest %s comes with it, as one of its old addresses; name another with --address", by.Guest)
	}
	return nil
}

// candidates are the first addresses of subnet that the guest may get, as far as is known without asking the LAN: those of
// guests here are no tries, as a host may have more of them. The error is what was passed over last.
func (b *Book) candidates(subnet config.Subnet, by Seeker) (out []netip.Addr, last error) {
	b.mu.Lock()
	others := b.spokenFor(by.Guest)
	b.mu.Unlock()
	last = fmt.Errorf("none, as network.first is %d", b.config.Network.First)
	for addr := hostPart(subnet.Prefix, b.config.Network.First); subnet.Prefix.Contains(addr) && len(out) < tries; addr = addr.Next() {
		if owner, taken := others[addr]; taken {
			last = hasIt(addr, owner)
		} else if NotForGuests(subnet, addr) == "" && !slices.Contains(by.ComesWith, addr) {
			out = append(out, addr)
		}
	}
	return out, last
}

// probe promises addr to the guest, or says who has it, as an error.
func (b *Book) probe(ctx context.Context, addr netip.Addr, guest string) (err error) {
	if err := b.Promise(addr, guest); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			b.Release(guest, addr)
		}
	}()
	used, by, err := netstate.Probe(ctx, b.config.Network.Bridge, addr)
	if err != nil {
		return fmt.Errorf("probe address %s: %w", addr, err)
	}
	if used {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"next address %s: in use on site %s by %s; free it or name another with --address", addr, b.config.Site, by)}
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
