package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

const spareIDs = 3 // endpoint ids for announcing again

// adopt hands the guest over, or, when that fails for limits.Handover, lets it stay on its
// old addresses for good, through the tunnel: a migration must come to its end also with
// a guest that cannot be reached, cannot do it, or never answers again.
func (m *incoming) adopt(ctx context.Context) error {
	if m.work.survey != nil {
		return m.writeHanded()
	}
	if m.work.adopting.IsZero() {
		m.work.adopting = time.Now()
		if err := m.a.publish(m.plan.Guest); err != nil {
			m.rec.Note("its addresses are not published for BGP, and take the tunnel: " + err.Error())
		}
	}
	most := limits.Handover.ForCrowd(m.plan.Connections, limits.CrowdSteps)
	whole, cancel := most.Since(ctx, m.work.adopting)
	defer cancel()
	runs, stop := m.whileRuns(whole)
	defer stop()
	err := m.handOver(runs)
	if err == nil || ctx.Err() != nil || m.work.survey != nil {
		return err
	}
	if errors.Is(context.Cause(runs), errStood) { // leave tells of it
		return m.stayOnOld(runs)
	}
	if whole.Err() == nil {
		m.work.trouble = err
		return err
	}
	if m.work.trouble != nil { // why it was tried again says more than that it was cut off
		err = m.work.trouble
	}
	return m.giveUpHandover(ctx, fmt.Sprintf("the handover failed for %v: %v; the guest ", most.For, err))
}

// stayOnOld ends a handover that failed: the guest is to stay on its old addresses.
func (m *incoming) stayOnOld(ctx context.Context) error {
	m.takeNextBack(ctx)
	m.keepAddress()
	return m.handed(nil, nil)
}

// keepAddress makes this a migration that leaves the guest on its old addresses.
func (m *incoming) keepAddress() {
	m.plan.Network = "tunnel"
	m.rec.SetPlan(m.landed())
	m.rec.Edit(func(r *record.Report) { r.Network = m.plan.Network })
}

// recall finds again, after a restart of the agent, how a handover that was done ended: the
// guest's own file has it.
func (m *incoming) recall() {
	has := migration.Bare(m.work.guest.Held().Addresses)
	both := func(a migration.Address) bool { return slices.Contains(has, a.Prefix.Addr()) }
	m.work.keepsOld = slices.ContainsFunc(m.plan.Held, both)
	if !m.plan.KeepsAddress() && !slices.ContainsFunc(m.plan.Next, both) {
		m.keepAddress()
	}
}

// asked bounds one thing that the guest is asked for in the handover.
func (m *incoming) asked(ctx context.Context, ask func(context.Context) error) error {
	return limits.GuestStep.ForCrowd(m.plan.Connections, 1).Do(ctx, ask)
}

// handOver hands the guest's connections over from its old addresses to the next.
// It is repeated when it fails: the guest runs here, and each call is idempotent.
func (m *incoming) handOver(ctx context.Context) error {
	m.rec.Enter(migration.Handover, time.Now())
	m.refreshGateways()
	plan := m.plan         // its next address may be changed meanwhile
	m.a.actors.Go(func() { // nobody waits for it
		m.a.runsHere(plan.ID)
		m.a.forgetAway(plan)
	})
	m.hearFirstWords(ctx)
	if err := m.rec.Timed("reach guest", func() error { return m.connect(ctx) }); err != nil {
		if m.plan.KeepsAddress() {
			if m.work.guest.HasChannel() && !errors.Is(context.Cause(ctx), errStood) {
				m.rec.Note(err.Error())
			}
			return m.handed(nil, nil)
		}
		return err
	}
	if m.plan.KeepsAddress() {
		if err := m.hearGuest(ctx); err != nil {
			return err
		}
		return m.handed(nil, nil)
	}
	// The address first: all that follow wait for it.
	if err := m.setNext(ctx); err != nil {
		_ = m.hearGuest(ctx) // also then: it is to stop saying that it runs
		return err
	}
	return m.follow(ctx)
}

// setNext gives the guest its next addresses, which it announces.
func (m *incoming) setNext(ctx context.Context) error {
	if err := m.replaceTaken(ctx); err != nil {
		return err
	}
	g, spare := m.work.guest, 1-m.plan.Active
	silent, introduce := g.Held().Description.Silent(), func() { m.a.introduce(m.plan.Next, g.Held().Description.NICs[spare].Hardware()) }
	if !silent {
		introduce()
	}
	m.work.placed = true // or may be, whatever the guest answers
	var made guest.Configured
	if err := m.rec.Timed("set next address", func() error {
		set := func(ctx context.Context) (err error) {
			made, err = g.Channel().Configure(ctx, handed.Configure(g.Held(), m.a.config.Network, spare, m.plan.Next, m.table(), false))
			return err
		}
		if silent { // it asks when it likes, and the channel has a limit of its own
			return set(ctx)
		}
		return m.asked(ctx, set)
	}); err != nil {
		m.noteInUse(err)
		return fmt.Errorf("set the next address: %w", err)
	}
	if silent { // not before: it takes seconds, in which the address may turn out to be another's, who would get no packets then
		introduce()
	}
	m.announcedBy(made.EndpointIDs)
	return nil
}

// introduce tells the guest's LAN, and its routers, that its next addresses are at mac from now on. Clients come all at
// once, and a router that has to ask first keeps some of their packets alone. One that was asked for an address which
// nobody had yet may not ask again for a second, or refuse clients, who do not try again by themselves. Nothing depends
// on it: who missed it asks.
func (a *Agent) introduce(next []migration.Address, mac net.HardwareAddr) {
	for _, n := range next {
		addr := n.Prefix.Addr()
		err := netstate.Announce(a.config.Network.Bridge, addr, mac)
		if n.Gateway.IsValid() {
			err = errors.Join(err, netstate.Introduce(a.config.Network.Bridge, addr, mac, n.Gateway))
		}
		if err != nil {
			a.log.Warn("introduce the guest's next address", "address", addr, "error", err)
		}
	}
}

// followTries is how often connections may lose their new subflow before the old
// addresses are kept for them.
const followTries = 3

// follow waits for the connections and retires the old addresses. A connection whose new
// subflow broke before they were is waited for again: without them it would be lost.
func (m *incoming) follow(ctx context.Context) error {
	g := m.work.guest
	heard := m.hearLater(ctx)
	for try := 1; ; try++ {
		err := m.rec.Timed("connections follow", func() error {
			return m.awaitJoin(ctx)
		})
		if try == 1 {
			if told := heard(); err == nil {
				err = told
			}
		}
		if err != nil {
			return err
		}
		m.work.mainNext = true
		m.noteTried()
		if err := m.makeMain(ctx, g.Channel()); err != nil {
			return err
		}
		var users *guest.Users
		err = m.rec.Timed("retire old address", func() (err error) {
			users, err = m.retire(ctx, try >= followTries)
			return err
		})
		if errors.Is(err, guest.ErrBound) {
			m.rec.Note(err.Error() + ": they are waited for again")
			continue
		}
		if err != nil {
			return err
		}
		return m.handed(m.work.joins, users)
	}
}

// table is the routing table in the guest for the next addresses.
func (m *incoming) table() int { return handed.NextTable(m.work.preparation.Table) }

// refreshGateways tells the guest where its old routers are here.
func (m *incoming) refreshGateways() {
	gateways := m.a.detours.RoutersOf(m.plan.Guest)
	for _, addr := range m.plan.Held {
		if way, known := m.a.detours.ComesFrom(m.plan.Guest, addr.Prefix.Addr()); addr.Home == m.a.config.Host || known && way == "" {
			continue // its router is here and answers for itself
		}
		gateways = append(gateways, addr.Gateway)
	}
	m.tellRouters(m.work.guest.Held().Active, gateways)
}

// tellRouters tells a NIC of the guest the MAC that answers for routers here, so that it need not find out by a timeout.
func (m *incoming) tellRouters(nic int, gateways []netip.Addr) {
	mac, err := netstate.HardwareOf(m.a.config.Network.Bridge)
	if err != nil {
		m.a.log.Warn("refresh the guest's neighbours", "error", err)
		return
	}
	target := m.work.guest.Held().Description.NICs[nic].Hardware()
	for _, gateway := range gateways {
		if err := netstate.AnnounceTo(m.a.config.Network.Bridge, target, gateway, mac); err != nil {
			m.a.log.Warn("refresh the guest's neighbours", "gateway", gateway, "error", err)
		}
	}
}

// connect waits for the guest's channel, which was dialled before it ran. While that dial
// waits no other is of use: the socket serves one client at a time.
func (m *incoming) connect(ctx context.Context) error {
	g := m.work.guest
	if g.Channel() == nil && g.Held().Description.Silent() {
		g.SpeakBy(m.a.fromOutside(g))
	}
	if c := g.Channel(); c != nil && !line.Closed(c) {
		return nil
	}
	silent := func(err error) error {
		return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("guest %s: its channel is silent after the move: %v", m.plan.Guest, err)}
	}
	if m.work.dialled != nil {
		wait, cancel := limits.Channel.On(ctx)
		defer cancel()
		select {
		case d := <-m.work.dialled:
			m.work.dialled = nil
			if d.err == nil {
				g.SpeakBy(d.client)
				return nil
			}
		case <-wait.Done():
			return silent(limits.Says(wait, wait.Err()))
		}
	}
	if _, err := g.Reach(ctx, limits.Channel); err != nil {
		return silent(err)
	}
	return nil
}

// awaitJoin waits until every connection has a working subflow on the next address.
func (m *incoming) awaitJoin(ctx context.Context) error {
	before := m.work.joins
	if m.plan.Network != "mptcp" && !m.plan.Chosen {
		m.work.joins = (guest.Joins{}).Since(before)
		return nil
	}
	patience := limits.Limit{For: limits.UnableAfter}.ForCrowd(m.plan.Connections, 1).For
	ask := guest.AwaitJoin{Addrs: migration.Bare(m.plan.Next), Old: migration.Bare(m.plan.Held), LimitMS: patience.Milliseconds()}
	known, last := m.work.used, m.lastEndpoint()
	for range spareIDs {
		last = handed.NextEndpoint(last)
		ask.SpareIDs = append(ask.SpareIDs, last)
	}
	m.work.used = last // where nobody says which of them are
	m.noteTried()
	within := limits.Join
	within.For += patience - limits.UnableAfter
	ctx, cancel := whileTold(ctx, within, m.work.guest.Channel())
	defer cancel()
	joins, err := m.work.guest.Channel().AwaitJoin(ctx, ask)
	if err != nil {
		return fmt.Errorf("wait for connections to follow: %w", limits.Says(ctx, err))
	}
	m.noteLast(joins)
	m.work.joins, m.work.used = joins.Since(before), known
	if n := len(joins.Endpoints); n > 0 {
		m.work.used = joins.Endpoints[n-1]
	}
	return nil
}

// whileTold bounds ctx by the limit, which begins again each time that the guest says that it still waits for
// connections. One that lacks processors ends its wait late, and would begin it again if it were asked once more.
func whileTold(ctx context.Context, l limits.Limit, c guest.Channel) (context.Context, context.CancelFunc) {
	if teller, tells := c.(interface{ JoinToldAt() time.Time }); tells {
		return l.Anew(ctx, teller.JoinToldAt)
	}
	return l.On(ctx)
}

// noteLast keeps when the last connection followed: the guest is asked, and answers, some time after that.
func (m *incoming) noteLast(joins guest.Joins) {
	ago := time.Duration(joins.LastMS) * time.Millisecond
	ran := m.rec.Snapshot().Resumed
	if at := time.Now().Add(-ago); joins.Joined > 0 && ago > 0 && m.rec.Stamp(at) > ran {
		m.rec.MomentAt(record.StepCame, at)
	}
}

// retire takes the old addresses from the guest, but those that something still
// needs: they move to the active NIC, which nobody notices. stay keeps them in any case.
func (m *incoming) retire(ctx context.Context, stay bool) (*guest.Users, error) {
	g := m.work.guest
	old := migration.Bare(m.plan.Held)
	var users guest.Users
	if err := m.asked(ctx, func(ctx context.Context) (err error) {
		users, err = g.Channel().Users(ctx, old...)
		return err
	}); err != nil {
		return nil, err
	}
	spare := 1 - m.plan.Active
	if g.Held().Description.Silent() { // what its old NIC has, stays there until the end of the lease
		m.work.keepsOld = true
		return &users, nil
	}
	joins := m.work.joins
	stays := stay || len(joins.Unable)+joins.Omitted > 0 || m.plan.Network == "drain" && users.MPTCP > 0
	keep := g.Asks().InUse(users) || stays
	m.work.keepsOld = keep
	retire := m.retiring(m.plan.Held)
	retire.Keep, retire.Stay = keep, keep
	for _, addr := range m.plan.Held {
		if addr.Endpoint != 0 {
			retire.EndpointIDs = append(retire.EndpointIDs, addr.Endpoint)
		}
	}
	if link, _, err := m.a.link(m.plan.From); err == nil && !keep {
		link.Ahead() // it is asked to end the tunnel soon: see endBoth
	}
	m.awaitListed(ctx)
	once := func(ctx context.Context) error { return g.Channel().Retire(ctx, retire) }
	if err := m.asked(ctx, once); err != nil {
		return nil, fmt.Errorf("retire the old address: %w", err)
	}
	if !keep {
		return &users, nil
	}
	if err := m.leadTo(spare); err != nil {
		return nil, err
	}
	m.tellRouters(spare, m.keptRouters(retire))
	m.emptyTap(ctx)
	retire.Stay = false
	return &users, m.asked(ctx, once)
}

// keptRouters are those by which the guest sends what it keeps from its other NIC, and for which this host answers. It may
// have asked there for them before its addresses were known there, and what answered IPv6 went to its old NIC.
func (m *incoming) keptRouters(retire guest.Retire) (out []netip.Addr) {
	for _, gateway := range []netip.Addr{retire.KeepGatewayV4, retire.KeepGatewayV6} {
		if gateway = m.a.answersFor(m.plan, gateway); gateway.IsValid() {
			out = append(out, gateway)
		}
	}
	return out
}

// retiring is what the guest is asked for to take old addresses from the NIC that had them, or to keep them.
func (m *incoming) retiring(old []migration.Address) guest.Retire {
	nics := m.work.guest.Held().Description.NICs
	retire := guest.Retire{Addrs: migration.Bare(old), MAC: nics[m.plan.Active].MAC, NewMAC: nics[1-m.plan.Active].MAC}
	handed.SentBy(&retire, old, m.plan.Next)
	return retire
}
