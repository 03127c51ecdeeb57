package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/addresses"
	"godwit/agent/config"
	"godwit/agent/handed"
	"godwit/agent/outside"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/vm/guest"
)

// guardEvery is how often the next addresses are asked for again while memory is
// copied: between the check and the handover somebody else may take them.
const guardEvery = time.Second

// probeNext asks the LAN who has addr; it is free to the guest where that has it already: by one of its own NICs nobody
// takes it from it.
func (m *incoming) probeNext(ctx context.Context, addr netip.Addr) (string, bool) {
	by, used := m.a.book.Used(ctx, addr)
	return by, used && !handed.OwnNIC(m.work.guest.Held().Description, by)
}

// replaceTaken chooses other next addresses for those that were taken since the
// check. Addresses that nobody took stay.
func (m *incoming) replaceTaken(ctx context.Context) error {
	m.lookAtNext(ctx)
	for i, next := range m.plan.Next {
		by, lost := m.work.taken[next.Prefix.Addr()]
		if !lost {
			continue
		}
		n := m.a.config.Network
		subnet := config.Subnet{Prefix: n.SubnetOf(next.Prefix.Addr()), Gateway: n.GatewayOf(next.Prefix.Addr().Is4())}
		addr, given := m.given(ctx, subnet)
		if !given {
			var err error
			if addr, err = m.a.book.FreeIn(ctx, subnet, addresses.Seeker{Guest: m.plan.Guest, ComesWith: slices.AppendSeq(migration.Bare(m.plan.Held), maps.Keys(m.work.taken))}); err != nil {
				return err
			}
		}
		m.rec.Note(fmt.Sprintf("next address %s was taken by %s after the check; %s is used", next.Prefix.Addr(), by, addr))
		if joins := m.work.joins; joins != nil { // to what is another's
			m.work.joins = &guest.Joins{Endpoints: joins.Endpoints}
		}
		m.changeNext(func(all []migration.Address) {
			all[i].Prefix, all[i].Public = netip.PrefixFrom(addr, subnet.Prefix.Bits()), n.Seen(addr)
		})
	}
	return nil
}

// given is the address of subnet that an agent before this one has given the guest in the place of one that was taken,
// and was killed before it had written that down; false: none. By another one yet the guest would have one of which
// nobody knows. It is promised to it.
func (m *incoming) given(ctx context.Context, subnet config.Subnet) (netip.Addr, bool) {
	if !m.work.found {
		return netip.Addr{}, false
	}
	g := m.work.guest
	info, err := g.Info(ctx)
	if err != nil {
		return netip.Addr{}, false // and is told by who sets the next one
	}
	known := migration.Bare(slices.Concat(m.plan.Held, m.plan.Next))
	for _, addr := range lists.Without(handed.AddressesOf(info, g.Held().Description.NICs[1-m.plan.Active]), known) {
		if subnet.Prefix.Contains(addr) && addresses.NotForGuests(subnet, addr) == "" && m.a.book.Promise(addr, m.plan.Guest) == nil {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// changeNext changes a copy of the next addresses, and takes it for them.
func (m *incoming) changeNext(change func([]migration.Address)) {
	all := slices.Clone(m.plan.Next)
	change(all)
	m.a.mu.Lock() // others look at what is promised to guests that come
	m.plan.Next = all
	m.a.mu.Unlock()
	m.mu.Lock()
	m.offer.Plan.Next = all // what the journal keeps
	m.mu.Unlock()
	m.rec.SetPlan(m.landed())
}

// landed is the plan for those who hear of events, such as hooks: with the addresses that the guest has here.
func (m *incoming) landed() migration.Plan { return m.plan.Landed("", nil) }

// announcedBy writes down by which ids the guest announces its next addresses, of pairs as
// handed.NextEndpoint has them: it takes others where programs of its own have those that it was
// to take.
func (m *incoming) announcedBy(ids []uint8) {
	for _, id := range ids {
		for i, next := range m.plan.Next {
			if id != 0 && next.Endpoint != 0 && next.Endpoint != id && next.Prefix.Addr().Is4() == (id%2 == 1) {
				m.changeNext(func(all []migration.Address) { all[i].Endpoint = id })
			}
		}
	}
}

// lookAtNext finds out who else has the next addresses: by what the guard saw, or, in an agent that was
// started again and has none, by asking for them now. The guest itself may have them by then.
func (m *incoming) lookAtNext(ctx context.Context) {
	switch {
	case m.work.taken != nil: // a handover that is tried again knows it
	case m.work.guard.Load() != nil:
		m.work.taken = m.work.guard.Swap(nil).Stop()
	default:
		m.work.taken = map[netip.Addr]string{}
		for _, next := range m.plan.Next {
			if by, used := m.probeNext(ctx, next.Prefix.Addr()); used {
				m.work.taken[next.Prefix.Addr()] = by
			}
		}
	}
}

// noteInUse writes down whose a next address is that the guest could not get for that: the next try is with another one.
func (m *incoming) noteInUse(err error) {
	if inUse := (*outside.InUseError)(nil); errors.As(err, &inUse) {
		m.work.taken[inUse.Addr] = inUse.By
	}
}
