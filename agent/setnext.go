package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"godwit/migration"
	"godwit/vm/guest"
)

// set is what a guest answered that was asked to take its next addresses.
type set struct {
	made guest.Configured
	err  error
}

// askAhead has the guest find in its channel, as the first thing when it runs here, what is left of its next addresses: one
// request, upon which its peers hear of them, who come a round trip later. QEMU hands it to no guest that
// does not run. It is done where all else was done beforehand (guest.CapReady), which IPv6 addresses are not, and where nobody
// took the addresses since the check; else they come after the guest's first words (hearFirstWords).
func (m *incoming) askAhead() {
	v6 := func(a migration.Address) bool { return !a.Prefix.Addr().Is4() }
	guard := m.work.guard
	if m.plan.KeepsAddress() || !m.work.preparation.Ready || guard == nil || !guard.free() || slices.ContainsFunc(m.plan.Next, v6) {
		return
	}
	g := m.work.guest
	select {
	case d := <-m.work.dialled:
		if d.err != nil {
			m.work.dialled <- d // for connect
			return
		}
		m.work.dialled = nil
		g.speakBy(d.client)
	default:
		return
	}
	m.work.guard, m.work.taken = nil, map[netip.Addr]string{}
	m.a.actors.Go(func() { guard.stop() })
	m.work.placed = true
	m.work.ahead = make(chan set, 1)
	wanted, channel, answer := m.wanted(), g.channel(), m.work.ahead
	go func() {
		var s set
		s.err = m.asked(m.a.ctx, func(ctx context.Context) (err error) {
			s.made, err = channel.Configure(ctx, wanted)
			return err
		})
		answer <- s
	}()
}

// wanted is what the guest's spare NIC is to have.
func (m *incoming) wanted() guest.Configure {
	return m.a.configuration(m.work.guest, 1-m.plan.Active, m.plan.Next, m.table(), false)
}

// setNext gives the guest its next addresses, which it announces.
func (m *incoming) setNext(ctx context.Context) error {
	if err := m.replaceTaken(ctx); err != nil {
		return err
	}
	m.work.placed = true // or may be, whatever the guest answers
	var made guest.Configured
	if err := m.rec.Timed("set next address", func() (err error) {
		made, err = m.configureNext(ctx)
		return err
	}); err != nil {
		return fmt.Errorf("set the next address: %w", err)
	}
	m.announcedBy(made.EndpointIDs)
	return nil
}

// configureNext asks the guest to take them, or hears what it answered where it was asked ahead; after an error it is asked again.
func (m *incoming) configureNext(ctx context.Context) (made guest.Configured, err error) {
	if ahead := m.work.ahead; ahead != nil {
		m.work.ahead = nil
		select {
		case s := <-ahead:
			if s.err == nil {
				return s.made, nil
			}
			m.a.log.Info("the guest is asked again for its next address", "migration", m.plan.ID, "error", s.err)
			if err := m.connect(ctx); err != nil {
				return made, err
			}
		case <-ctx.Done():
			return made, ctx.Err()
		}
	}
	g := m.work.guest
	ask := func(ctx context.Context) (err error) {
		made, err = g.channel().Configure(ctx, m.wanted())
		return err
	}
	if g.Held.Description.Silent() { // it asks when it likes, and the channel has a limit of its own
		err = ask(ctx)
	} else {
		err = m.asked(ctx, ask)
	}
	return made, err
}
