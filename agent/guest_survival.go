package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/agent/record"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// listing is what the guest answers when asked for its connections.
type listing struct {
	guest.Connections
	err error
}

// listConnections asks the guest, beside what else it is asked.
func listConnections(ctx context.Context, g *guests.Guest, addrs []netip.Addr) <-chan listing {
	answer := make(chan listing, 1)
	channel := g.Channel()
	go func() {
		if channel == nil {
			answer <- listing{err: line.ErrNone}
			return
		}
		ctx, cancel := limits.Survey.On(ctx)
		defer cancel()
		all, err := channel.Connections(ctx, addrs...)
		answer <- listing{all, limits.Says(ctx, err)}
	}()
	return answer
}

// survive writes the survival report, once the handover is done. Called again, it
// does nothing.
func (m *incoming) survive(ctx context.Context) {
	g := m.work.guest
	if m.rec.Snapshot().Survival != nil {
		return
	}
	o := record.Judge{Held: migration.Bare(m.plan.Held), Next: migration.Bare(m.plan.Next), Keeps: m.plan.KeepsAddress(), Home: m.a.homesOf(g), Kept: m.work.keepsOld, Joins: m.work.joins, Now: m.rec.Now()}
	if o.Keeps {
		o.Next = nil
	}
	before := listing{err: errors.New("none were listed in the handover: its channel was silent, or the agent was started again since")}
	switch {
	case m.work.listedBefore != nil:
		before = <-m.work.listedBefore
		m.work.listedBefore = nil
	case !g.HasChannel():
		before.err = line.ErrNone
	}
	after := before
	if before.err == nil && !o.Keeps {
		after = <-listConnections(ctx, g, record.Begun(slices.Concat(o.Held, o.Next), before.List))
		o.Beside = beside(ctx, g, after.List, m.plan.Held, m.plan.Next)
	}
	s := &record.Survival{Connections: []record.Survivor{}}
	if err := cmp.Or(before.err, after.err); err != nil {
		s.Unknown = fmt.Sprintf("the guest's connections are not known: %v", err)
	} else {
		s = o.Survive(before.Connections, after.Connections)
	}
	if flows, err := netstate.Flows(m.plan.Guest); err == nil && (o.Keeps || o.Kept) {
		o.AddFlows(s, flows, s.Unknown != "")
	}
	m.rec.Edit(func(r *record.Report) { r.Survival = s })
}

// beside are the addresses of a guest's NICs that its migration from old to next addresses does not touch, as one to a
// network of its own. It is asked for them where one of these connections works on another address than those.
func beside(ctx context.Context, g *guests.Guest, all []guest.Connection, old, next []migration.Address) map[netip.Addr]bool {
	known := migration.Bare(slices.Concat(old, next))
	elsewhere := func(w netip.AddrPort) bool { return !slices.Contains(known, w.Addr()) }
	if !slices.ContainsFunc(all, func(c guest.Connection) bool { return slices.ContainsFunc(c.Working, elsewhere) }) {
		return nil
	}
	info, err := g.Info(ctx)
	if err != nil {
		return nil
	}
	return handed.Beside(g.Held().Description, info, old, next)
}

// homesOf are those of a guest's addresses that are at home here by now.
func (a *Agent) homesOf(g *guests.Guest) []netip.Addr {
	return migration.Bare(slices.DeleteFunc(slices.Clone(g.Held().Addresses), func(addr migration.Address) bool { return addr.Home != a.config.Host }))
}

// followSurvival looks what became of the connections that a detour still carried; last: before it ends, and with it
// those of the guest's addresses, or all (none).
func (a *Agent) followSurvival(ctx context.Context, g *guests.Guest, d detour.Detour, last bool, of ...netip.Addr) {
	id := migrationOf(d.ID)
	rep, now, ok := a.told(id)
	if !ok || rep.Survival == nil || rep.Survival.Tunnelled == 0 || g.Channel() == nil {
		return
	}
	if !last && !g.Asks().ListsAgain(d, rep.Survival.Tunnelled) {
		return
	}
	if last { // an end does not wait for a list that takes long
		var cancel context.CancelFunc
		ctx, cancel = limits.AskGuest.On(ctx)
		defer cancel()
	}
	known := migration.Bare(slices.Concat(rep.Old, rep.Next))
	all := <-listConnections(ctx, g, rep.Survival.Began(known))
	flows, err := netstate.Flows(d.Guest)
	if all.err != nil || err != nil || all.Omitted > 0 {
		return
	}
	s := rep.Survival
	before := s.ByFate()
	next := migration.Bare(rep.Next)
	home := slices.DeleteFunc(a.homesOf(g), func(addr netip.Addr) bool { return s.HasDatagrams(addr) && a.isQuiet(ctx, g, addr) })
	var kept []netip.Addr
	if rep.Network == "tunnel" { // nothing moves, and what has an end on such an address outlives the others
		given, _ := g.Held().Handed()
		next, kept = nil, migration.Bare(given)
	}
	stay := migration.Bare(rep.Old)
	switch {
	case last && len(of) == 0:
		stay = nil
	case last: // and who works on these, outlives the others
		stay = lists.Without(stay, of)
		kept = append(kept, stay...)
	}
	s.Follow(all.List, flows, next, kept, home, now)
	s.FollowBeside(all.List, stay, beside(ctx, g, s.Left(all.List), rep.Old, rep.Next))
	if before[migration.Tunnelled] != s.Tunnelled || last && len(kept) > 0 { // by where their ends are it is judged who is lost (settleSurvival)
		a.records.Amend(id, func(r *record.Report) { r.Survival = s })
		a.became(rep, before)
	}
}

// isQuiet says whether it is known that no datagram has come to an address of a guest for a while.
func (a *Agent) isQuiet(ctx context.Context, g *guests.Guest, addr netip.Addr) bool {
	users, err := a.usersOf(ctx, g, addr)
	return err == nil && users.UDPCount > 0 && users.Uncounted == "" && g.Asks().IsQuiet(addr, users.UDPCount)
}

// settleSurvival writes down that the tunnel of a detour goes. used: something
// still used it. of: those of the guest's addresses that go with it; none: all.
func (a *Agent) settleSurvival(d detour.Detour, used bool, of ...netip.Addr) {
	rep, now, ok := a.told(migrationOf(d.ID))
	s := rep.Survival
	if !ok || s == nil || s.Tunnelled == 0 {
		return
	}
	before := s.ByFate()
	s.Withdraw(used, now, of...)
	a.records.Amend(migrationOf(d.ID), func(r *record.Report) { r.Survival = s })
	a.became(rep, before)
}

// told is a migration's report, and the time by its clock.
func (a *Agent) told(id string) (rep record.Report, now int64, ok bool) {
	rec, err := a.records.Kept(id)
	if err != nil {
		return record.Report{}, 0, false
	}
	return rec.Snapshot(), rec.Now(), true
}

// migrationOf is the id of the migration that made a detour.
func migrationOf(detour string) string { return detour[:min(len(detour), len("m-00000000"))] }

// settleNetwork looks at the guest's connections, and settles what network auto means for them.
func (m *outgoing) settleNetwork(ctx context.Context) {
	if m.plan.KeepsAddress() {
		return
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	users, err := m.guest.Channel().Users(ctx, migration.Bare(m.plan.Held)...)
	m.noteRoom(users.MPTCP)
	m.plan.Connections = users.MPTCP
	if err != nil {
		m.rec.Note("the guest's connections are not known before the move: " + err.Error())
	} else {
		m.work.users = users
	}
	if users.Uncounted != "" {
		m.rec.Note(fmt.Sprintf("the guest's program cannot count datagrams (%s): those that come to its old address, to sockets that are not connected, do not keep the tunnel; with network tunnel they go on", users.Uncounted))
	}
	if users.Outward > 0 {
		m.rec.Note(fmt.Sprintf("%d connections of containers, which the guest forwards in its own name, end as it takes the next address if it masquerades them; with network tunnel they live on", users.Outward))
	}
	if m.plan.Network != "auto" {
		return
	}
	m.plan.Network, m.plan.Chosen = "mptcp", true
	if err == nil && users.MPTCP == 0 && users.TCP-users.Opening+users.UDP > 0 {
		m.plan.Network = "drain"
		m.rec.Note("network auto: drain, since no connection of the guest is MPTCP now; what opens as MPTCP before the switch follows all the same")
	}
}
