package record

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

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
	At     int64           `json:"at,omitempty"` // unix ns, by the clock of its report: when it was seen to have ended, or was lost
	// Outward: of a container, as guest.Connection has it, in a guest that sends by another NIC now.
	Outward bool `json:"outward,omitempty"`
}

// forgotten is why an Outward one is lost.
const forgotten = "forgotten by the guest, which masquerades it, as it left by another NIC, unless it was closed just then"

// keptAtHome is why one goes on that needs no tunnel.
const keptAtHome = "the guest keeps its address, which " + atHome

// atHome ends what is said of one that stays on an address which the guest has come home with.
const atHome = "is at home there: no tunnel"

// oldAtHome follows why one stays on the old address where the guest takes another one, and has come home all the same.
const oldAtHome = "; its old address " + atHome

// goesHome says that one which is still on its old address comes to the guest there without a tunnel.
func (c *Survivor) goesHome() bool { return strings.HasSuffix(c.Why, atHome) }

// endsInTunnel is said of one that was tunnelled, and is no more; closed: that its ends did so is known; now is as in a
// Judge.
func (c *Survivor) endsInTunnel(closed bool, now int64) {
	why := "through the tunnel until it ended"
	if c.goesHome() {
		why = "without a tunnel until it ended"
	}
	c.Fate, c.Why, c.At = migration.EndedItself, why, now
	if c.Outward && !closed {
		c.Fate, c.Why = migration.Lost, forgotten
	}
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

// Shift turns what was written by a clock that is ahead by skew, ns, into what this host's says.
func (s *Survival) Shift(skew int64) {
	if s == nil {
		return
	}
	for i := range s.Connections {
		if c := &s.Connections[i]; c.At != 0 {
			c.At -= skew
		}
	}
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

// Judge is what a move has left of a guest's addresses, to judge connections by.
type Judge struct {
	Held, Next []netip.Addr
	Beside     map[netip.Addr]bool // those of the guest's NICs that no migration touches
	Keeps      bool                // the guest keeps its addresses for good
	Home       []netip.Addr        // those that are at home where it is now
	Kept       bool                // they live on, on a lease
	Joins      *guest.Joins
	Now        int64 // unix ns, by the clock of the report
}

type connectionKey struct {
	kind          string
	local, remote netip.AddrPort
}

func keyOf(c guest.Connection) connectionKey { return connectionKey{c.Kind, c.Local, c.Remote} }

// Survive judges each connection of before by what is there after.
func (o Judge) Survive(before, after guest.Connections) *Survival {
	there := map[connectionKey]guest.Connection{}
	for _, c := range after.List {
		there[keyOf(c)] = c
	}
	s := &Survival{Connections: []Survivor{}, Omitted: before.Omitted}
	for _, c := range before.List {
		if c.Over {
			continue
		}
		one := Survivor{Kind: c.Kind, Local: c.Local, Remote: c.Remote, Outward: c.Outward && !o.Keeps}
		now, ok := there[keyOf(c)]
		switch {
		case !ok && after.Omitted > 0:
			s.Omitted++ // it may be among those
			continue
		case !ok || now.Over:
			one.Fate, one.Why, one.At = migration.EndedItself, "closed by one of its ends during the handover", o.Now
			if one.Outward && !now.Over {
				one.Fate, one.Why = migration.Lost, forgotten
			}
		default:
			o.decide(&one, now)
		}
		s.Connections = append(s.Connections, one)
	}
	s.fit()
	return s
}

// decide says what became of a connection that the guest still has.
func (o Judge) decide(one *Survivor, now guest.Connection) {
	on := func(addrs []netip.Addr) *netip.AddrPort {
		return worksOn(now, func(addr netip.Addr) bool { return slices.Contains(addrs, addr) })
	}
	beside := worksOn(now, func(addr netip.Addr) bool { return o.Beside[addr] })
	switch {
	case o.Keeps && o.atHome(now):
		one.Fate, one.Why = migration.Tunnelled, keptAtHome
	case o.Keeps:
		one.Fate, one.Why = migration.Tunnelled, "the guest keeps its address"
	case now.Kind == guest.KindMPTCP && on(o.Next) != nil:
		one.Fate, one.Now = migration.Moved, on(o.Next)
	case now.Kind == guest.KindMPTCP && len(now.Working) == 0:
		one.Fate, one.Why, one.At = migration.Lost, "no subflow of it works any more", o.Now
	case now.Kind == guest.KindMPTCP && beside != nil && !(o.Kept && on(o.Held) != nil): // or the one of the two may be dead
		one.Fate, one.Now, one.Why = migration.Moved, beside, besideIt
	case !o.Kept:
		one.Fate, one.Why, one.At = migration.Lost, "its old address was withdrawn", o.Now
	default:
		one.Fate, one.Why = migration.Tunnelled, o.why(now)
		if o.atHome(now) {
			one.Why = strings.TrimPrefix(one.Why+oldAtHome, "; ")
		}
	}
}

// atHome says whether all that a connection works by is at home where the guest is now: one of MPTCP works by other
// addresses than its first end, too, or by others alone.
func (o Judge) atHome(c guest.Connection) bool {
	if c.Kind == guest.KindMPTCP && len(c.Working) > 0 {
		return !slices.ContainsFunc(c.Working, func(w netip.AddrPort) bool { return !slices.Contains(o.Home, w.Addr()) })
	}
	return slices.Contains(o.Home, c.Local.Addr())
}

// why says why a connection stays on its old address.
func (o Judge) why(c guest.Connection) string {
	switch {
	case c.Kind == guest.KindUDP:
		return "UDP cannot change its address"
	case c.Fallback:
		return "fell back from MPTCP to plain TCP"
	case c.Outward:
		return "plain TCP cannot change its address; it ends as its container sends, if the guest masquerades it"
	case c.Kind == guest.KindTCP:
		return "plain TCP cannot change its address"
	case o.Joins == nil:
		return ""
	}
	for _, u := range o.Joins.Unable {
		if u.Remote == c.Remote {
			return u.Why
		}
	}
	if o.Joins.Omitted > 0 {
		return leftUnsaid
	}
	return "it was left on its old address"
}

// leftUnsaid is said of those for which a guest has no room to say more. They are not told again.
const leftUnsaid = "it was left on its old address; of so many that were the guest does not say of each why"

// survivorsListed and survivorsMost bound a report to what fits into one answer between agents, and can be read from
// the history: in connections, and in bytes, as a guest may say much of each.
const (
	survivorsListed = guest.ConnectionsMost + 500
	survivorsMost   = 5 << 20
)

// fit leaves out those for which there is no room, and makes the sums anew.
func (s *Survival) fit() {
	size := 0
	for i, c := range s.Connections {
		data, err := json.Marshal(c)
		if size += len(data) + 1; err != nil || size > survivorsMost {
			s.Omitted += len(s.Connections) - i
			s.Connections = s.Connections[:i]
			break
		}
	}
	s.count()
}

// inTunnel is why one is told that no list has.
const inTunnel = "seen in the tunnel"

// AddFlows adds the UDP flows through the tunnel that no connected socket of the
// guest stands for, and with all set the others too. Those to home need none any more; a prober's there are
// left out, as the guest's count, by which it is known whether they go on, has none of them.
func (o Judge) AddFlows(s *Survival, flows []netstate.Flow, all bool) {
	known := map[connectionKey]bool{}
	for _, c := range s.Connections {
		known[connectionKey{c.Kind, c.Local, c.Remote}] = true
	}
	for _, f := range flows {
		atHome := f.Protocol == guest.KindUDP && slices.Contains(o.Home, f.Guest.Addr())
		key := connectionKey{f.Protocol, f.Guest, f.Client}
		if known[key] || !slices.Contains(o.Held, f.Guest.Addr()) || f.Protocol != guest.KindUDP && !all ||
			atHome && f.Guest.Port() == guest.PortEcho {
			continue
		}
		known[key] = true
		if len(s.Connections) >= survivorsListed {
			s.Omitted++
			continue
		}
		one := Survivor{Kind: f.Protocol, Local: f.Guest, Remote: f.Client, Fate: migration.Tunnelled, Why: inTunnel}
		switch {
		case !atHome:
		case o.Keeps:
			one.Why = keptAtHome
		default:
			one.Why = o.why(guest.Connection{Kind: f.Protocol}) + oldAtHome
		}
		s.Connections = append(s.Connections, one)
	}
	s.fit()
}

// Follow moves on those that were tunnelled at the last look; now is as in a Judge. One of MPTCP that works on kept has
// its end there for as long as it does. Datagrams to what is at home are not among flows: those to one of home are
// taken to go on.
func (s *Survival) Follow(all []guest.Connection, flows []netstate.Flow, next, kept, home []netip.Addr, now int64) {
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
		if !ok && c.Kind == guest.KindTCP && c.Why == inTunnel { // packets alone did not tell that it is a connection's first subflow
			if at, ok = there[connectionKey{guest.KindMPTCP, c.Local, c.Remote}]; ok {
				c.Kind = at.Kind
			}
		}
		if !ok && c.Kind == guest.KindUDP {
			ok = slices.Contains(home, c.Local.Addr()) || slices.ContainsFunc(flows, func(f netstate.Flow) bool { return f.Client == c.Remote && f.Guest == c.Local && f.Idle < FlowQuiet })
		}
		if !ok || at.Over {
			c.endsInTunnel(at.Over, now)
			continue
		}
		if c.Now != nil && !slices.Contains(at.Working, *c.Now) {
			c.Now = nil
		}
		for _, w := range at.Working {
			if slices.Contains(next, w.Addr()) && c.Kind == guest.KindMPTCP {
				c.Fate, c.Why, c.Now = migration.Moved, "late", &w
				break
			}
			if slices.Contains(kept, w.Addr()) && c.Kind == guest.KindMPTCP && c.Local != w {
				c.Now = &w
			}
		}
	}
	s.count()
}

// HasDatagrams says whether any that no list has come to an address still.
func (s *Survival) HasDatagrams(addr netip.Addr) bool {
	return slices.ContainsFunc(s.Connections, func(c Survivor) bool {
		return c.Kind == guest.KindUDP && c.Fate == migration.Tunnelled && c.Local.Addr() == addr
	})
}

// Withdraw ends those that are tunnelled, as the tunnel goes, and with it these addresses of the guest, or all (none);
// now is as in a Judge. expired: something still used it, but no datagrams to what is at home: as long as it is known
// that any come, or a list has their socket, such an address is not withdrawn (lookAtVisitor).
func (s *Survival) Withdraw(expired bool, now int64, of ...netip.Addr) {
	for i := range s.Connections {
		c := &s.Connections[i]
		if end := cmp.Or(c.Now, &c.Local); c.Fate != migration.Tunnelled || len(of) > 0 && !slices.Contains(of, end.Addr()) {
			continue
		}
		home, lease := c.goesHome(), "the lease of the tunnel ended"
		if home {
			lease = "the lease of its old address ended"
		}
		c.endsInTunnel(false, now)
		if expired && !(home && c.Kind == guest.KindUDP) {
			c.Fate, c.Why = migration.Lost, lease
		}
	}
	s.count()
}

// FlowQuiet is how long no datagram of a flow may come before it is thought to have
// ended.
const FlowQuiet = 30 * time.Second
