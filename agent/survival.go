package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/detour"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// Survivor is one of a guest's connections, and what a migration made of it.
type Survivor struct {
	Kind   string          `json:"kind"`   // mptcp, tcp, udp
	Local  netip.AddrPort  `json:"local"`  // the guest's end before the move
	Remote netip.AddrPort  `json:"remote"` // the client's
	Fate   migration.Fate  `json:"fate"`
	Now    *netip.AddrPort `json:"now,omitempty"` // the guest's end, where it moved
	Why    string          `json:"why,omitempty"`
	At     int64           `json:"at,omitempty"` // unix ns: when it was seen to have ended, or was lost
}

// Survival is every connection that the guest had when it was moved. Total = Moved +
// Tunnelled + Ended + Lost; it goes on changing while a lease lasts.
type Survival struct {
	Total       int        `json:"total"`
	Moved       int        `json:"moved"`
	Tunnelled   int        `json:"tunnelled"`
	Ended       int        `json:"ended"`
	Lost        int        `json:"lost"`
	Connections []Survivor `json:"connections"`
	Omitted     int        `json:"omitted,omitempty"` // more of the guest's than are listed; not in Total
	Unknown     string     `json:"unknown,omitempty"` // why the guest's own list is missing: only flows of the tunnel are listed then
}

// count makes the sums anew.
func (s *Survival) count() {
	s.Total, s.Moved, s.Tunnelled, s.Ended, s.Lost = len(s.Connections), 0, 0, 0, 0
	for _, c := range s.Connections {
		switch c.Fate {
		case migration.Moved:
			s.Moved++
		case migration.Tunnelled:
			s.Tunnelled++
		case migration.EndedItself:
			s.Ended++
		case migration.Lost:
			s.Lost++
		}
	}
}

// outcome is what a move has left of a guest's addresses, to judge connections by.
type outcome struct {
	held, next []netip.Addr
	keeps      bool // the guest keeps its addresses for good
	kept       bool // they live on, on a lease
	joins      *guest.Joins
	now        time.Time
}

type connectionKey struct {
	kind          string
	local, remote netip.AddrPort
}

func keyOf(c guest.Connection) connectionKey { return connectionKey{c.Kind, c.Local, c.Remote} }

// survive judges each connection of before by what is there after.
func (o outcome) survive(before, after guest.Connections) *Survival {
	there := map[connectionKey]guest.Connection{}
	for _, c := range after.List {
		there[keyOf(c)] = c
	}
	s := &Survival{Connections: []Survivor{}, Omitted: before.Omitted}
	for _, c := range before.List {
		one := Survivor{Kind: c.Kind, Local: c.Local, Remote: c.Remote}
		now, ok := there[keyOf(c)]
		switch {
		case !ok && after.Omitted > 0:
			s.Omitted++ // it may be among those
			continue
		case !ok:
			one.Fate, one.Why, one.At = migration.EndedItself, "closed by one of its ends during the handover", o.now.UnixNano()
		default:
			o.judge(&one, now)
		}
		s.Connections = append(s.Connections, one)
	}
	s.count()
	return s
}

// judge says what became of a connection that the guest still has.
func (o outcome) judge(one *Survivor, now guest.Connection) {
	on := func(addrs []netip.Addr) *netip.AddrPort {
		for _, w := range now.Working {
			if slices.Contains(addrs, w.Addr()) {
				return &w
			}
		}
		return nil
	}
	switch {
	case o.keeps:
		one.Fate, one.Why = migration.Tunnelled, "the guest keeps its address"
	case now.Kind == guest.KindMPTCP && on(o.next) != nil:
		one.Fate, one.Now = migration.Moved, on(o.next)
	case now.Kind == guest.KindMPTCP && len(now.Working) == 0:
		one.Fate, one.Why, one.At = migration.Lost, "no subflow of it works any more", o.now.UnixNano()
	case !o.kept:
		one.Fate, one.Why, one.At = migration.Lost, "its old address was withdrawn", o.now.UnixNano()
	default:
		one.Fate, one.Why = migration.Tunnelled, o.why(now)
	}
}

// why says why a connection stays on its old address.
func (o outcome) why(c guest.Connection) string {
	switch {
	case c.Kind == guest.KindUDP:
		return "UDP cannot change its address"
	case c.Fallback:
		return "fell back from MPTCP to plain TCP"
	case c.Kind == guest.KindTCP:
		return "plain TCP cannot change its address"
	case o.joins == nil:
		return ""
	}
	for _, u := range o.joins.Unable {
		if u.Remote == c.Remote {
			return u.Why
		}
	}
	return "it was left on its old address"
}

// survivorsListed bounds a report to what fits into one request between agents.
const survivorsListed = guest.ConnectionsMost + 500

// addFlows adds the UDP flows through the tunnel that no connected socket of the
// guest stands for, and with all set the others too.
func (s *Survival) addFlows(flows []netstate.Flow, held []netip.Addr, all bool) {
	known := map[connectionKey]bool{}
	for _, c := range s.Connections {
		known[connectionKey{c.Kind, c.Local, c.Remote}] = true
	}
	for _, f := range flows {
		key := connectionKey{f.Protocol, f.Guest, f.Client}
		if known[key] || !slices.Contains(held, f.Guest.Addr()) || f.Protocol != guest.KindUDP && !all {
			continue
		}
		known[key] = true
		if len(s.Connections) >= survivorsListed {
			s.Omitted++
			continue
		}
		s.Connections = append(s.Connections, Survivor{Kind: f.Protocol, Local: f.Guest, Remote: f.Client, Fate: migration.Tunnelled, Why: "seen in the tunnel"})
	}
	s.count()
}

// listing is what the guest answers when asked for its connections.
type listing struct {
	guest.Connections
	err error
}

// listConnections asks the guest, beside what else it is asked.
func listConnections(ctx context.Context, g *Guest, addrs []netip.Addr) <-chan listing {
	answer := make(chan listing, 1)
	channel := g.channel()
	go func() {
		if channel == nil {
			answer <- listing{err: errors.New("it has no guest channel")}
			return
		}
		ctx, cancel := limitSurvey.on(ctx)
		defer cancel()
		all, err := channel.Connections(ctx, addrs...)
		answer <- listing{all, says(ctx, err)}
	}()
	return answer
}

// survive writes the survival report, once the handover is done. Called again, it
// does nothing.
func (m *incoming) survive(ctx context.Context) {
	g := m.work.guest
	if m.rec.snapshot().Survival != nil {
		return
	}
	o := outcome{held: bare(m.plan.Held), next: bare(m.plan.Next), keeps: m.plan.KeepsAddress(), kept: m.work.kept, joins: m.work.joins, now: time.Now()}
	if o.keeps {
		o.next = nil
	}
	before := listing{err: errors.New("its channel is silent")}
	if m.work.before != nil {
		before = <-m.work.before
		m.work.before = nil
	}
	after := before
	if before.err == nil && !o.keeps {
		after = <-listConnections(ctx, g, slices.Concat(o.held, o.next))
	}
	s := &Survival{Connections: []Survivor{}}
	if err := errors.Join(before.err, after.err); err != nil {
		s.Unknown = fmt.Sprintf("the guest's connections are not known: %v", err)
	} else {
		s = o.survive(before.Connections, after.Connections)
	}
	if flows, err := netstate.Flows(m.plan.Guest); err == nil && (o.keeps || o.kept) {
		s.addFlows(flows, o.held, s.Unknown != "")
	}
	m.rec.edit(func(r *Report) { r.Survival = s })
}

// followSurvival looks what became of the connections that a detour still carried.
func (a *Agent) followSurvival(ctx context.Context, g *Guest, d detour.Detour) {
	id := migrationOf(d.ID)
	rep, ok := a.reportOf(id)
	if !ok || rep.Survival == nil || rep.Survival.Tunnelled == 0 || g.channel() == nil {
		return
	}
	if rep.Survival.Tunnelled > 200 && time.Now().Unix()%10 != 0 {
		return // a long list, and not urgent
	}
	addrs := bare(slices.Concat(rep.Old, rep.Next))
	all := <-listConnections(ctx, g, addrs)
	flows, err := netstate.Flows(d.Guest)
	if all.err != nil || err != nil || all.Omitted > 0 {
		return
	}
	s := rep.Survival
	before := byFate(s)
	s.follow(all.List, flows, bare(rep.Next), time.Now())
	if before[migration.Tunnelled] != s.Tunnelled {
		a.amend(id, func(r *Report) { r.Survival = s })
		a.became(rep, before)
	}
}

// follow moves on those that were tunnelled at the last look.
func (s *Survival) follow(all []guest.Connection, flows []netstate.Flow, next []netip.Addr, now time.Time) {
	there := map[connectionKey]guest.Connection{}
	for _, c := range all {
		there[keyOf(c)] = c
	}
	for i := range s.Connections {
		c := &s.Connections[i]
		if c.Fate != migration.Tunnelled {
			continue
		}
		at, ok := there[connectionKey{c.Kind, c.Local, c.Remote}]
		if !ok && c.Kind == guest.KindUDP {
			ok = slices.ContainsFunc(flows, func(f netstate.Flow) bool { return f.Client == c.Remote && f.Guest == c.Local && f.Idle < flowQuiet })
		}
		if !ok {
			c.Fate, c.Why, c.At = migration.EndedItself, "through the tunnel until it ended", now.UnixNano()
			continue
		}
		for _, w := range at.Working {
			if slices.Contains(next, w.Addr()) && c.Kind == guest.KindMPTCP {
				c.Fate, c.Why, c.Now = migration.Moved, "late", &w
				break
			}
		}
	}
	s.count()
}

// flowQuiet is how long no datagram of a flow may come before it is thought to have
// ended.
const flowQuiet = 30 * time.Second

// settleSurvival writes down that the tunnel of a detour goes. expired: something
// still used it.
func (a *Agent) settleSurvival(d detour.Detour, expired bool) *Survival {
	rep, ok := a.reportOf(migrationOf(d.ID))
	if !ok || rep.Survival == nil || rep.Survival.Tunnelled == 0 {
		if ok {
			return rep.Survival
		}
		return nil
	}
	s := rep.Survival
	before := byFate(s)
	for i := range s.Connections {
		c := &s.Connections[i]
		if c.Fate != migration.Tunnelled {
			continue
		}
		c.Fate, c.Why, c.At = migration.EndedItself, "through the tunnel until it ended", time.Now().UnixNano()
		if expired {
			c.Fate, c.Why = migration.Lost, "the lease of the tunnel ended"
		}
	}
	s.count()
	a.amend(migrationOf(d.ID), func(r *Report) { r.Survival = s })
	a.became(rep, before)
	return s
}

// migrationOf is the id of the migration that made a detour.
func migrationOf(detour string) string { return detour[:min(len(detour), len("m-00000000"))] }

// settleNetwork notes what will become of the guest's connections, and settles what
// network auto means for them.
func (m *outgoing) settleNetwork(ctx context.Context) {
	if m.plan.KeepsAddress() {
		return
	}
	ctx, cancel := limitAskGuest.on(ctx)
	defer cancel()
	users, err := m.guest.channel().Users(ctx, bare(m.plan.Held)...)
	m.noteRoom(users.MPTCP)
	m.plan.Connections = users.MPTCP
	if err != nil {
		m.rec.note("the guest's connections are not known before the move: " + err.Error())
	} else if n := users.TCP + users.UDP; n > 0 {
		m.rec.note(fmt.Sprintf("before the move: %d MPTCP connections can follow; %d of plain TCP (no MPTCP, or it was stripped on the way) and %d of UDP will live on through the tunnel",
			users.MPTCP, users.TCP, users.UDP))
	}
	if m.plan.Network != "auto" {
		return
	}
	m.plan.Network, m.plan.Chosen = "mptcp", true
	if err == nil && users.MPTCP == 0 && users.TCP+users.UDP > 0 {
		m.plan.Network = "drain"
		m.rec.note("network auto: drain, since no connection of the guest is MPTCP now; what opens as MPTCP before the switch follows all the same")
	}
}
