package follow

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// keptFree is for how many endpoints there is to be room when some were told again: for the next move's, of each family.
const keptFree = 2

// TellAgain carries out guest.TellAgain. about is called before somebody is told.
func TellAgain(ctx context.Context, p guest.TellAgain, moves *Moves, about func()) (guest.Joins, error) {
	connections, err := mptcp.Connections()
	if err != nil {
		return guest.Joins{}, err
	}
	w := newWatch(p.AwaitJoin, moves)
	if w.only = returned(p, connections); len(w.only) == 0 {
		return guest.Joins{}, nil
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := w.begin(watching)
	if err != nil {
		return guest.Joins{}, err
	}
	if len(w.behind) > 0 && !filled(p.Addrs, connections) && w.hasRoom() {
		about()
		if err := w.tellOnce(ctx, time.Duration(p.SinceMS)*time.Millisecond); err != nil {
			return guest.Joins{}, err
		}
	}
	if len(w.used) > 0 {
		if err := w.follow(ctx, events, func(int, int) {}); err != nil {
			return guest.Joins{}, err
		}
		defer func() {
			if ctx.Err() == nil { // else the guest moves, perhaps, and others are told there
				Tidy()
			}
		}()
	}
	if err := w.leaveOld(); err != nil || len(w.used) == 0 {
		return guest.Joins{}, err // of those who were not told there is nothing to say
	}
	return w.outcome(), nil
}

// heardMost bounds for how long a client that was heard counts as there, as it is told again.
const heardMost = 10 * time.Second

// tellOnce tells those that are behind, by one address, once: the next time is the host's affair. Those that are known
// by the other family alone wait for that.
func (w *watch) tellOnce(ctx context.Context, since time.Duration) error {
	all := w.params.Addrs
	i := slices.IndexFunc(all, w.behindIn)
	if i < 0 {
		return nil
	}
	w.params.Addrs = all[i : i+1]
	defer func() { w.params.Addrs = all }()
	for token, c := range w.behind {
		if !reaches(w.params, c) {
			delete(w.behind, token)
			delete(w.only, token)
		}
	}
	w.from = w.start.Add(-min(since, heardMost))
	if w.vacate() { // with no id left for a second time
		w.roomy = true
		select {
		case <-time.After(vacatedFor):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.nudge()
	w.spare = nil
	return nil
}

// returned are those connections of which p is, by token, whose clients were heard of lately, or that have come by
// themselves and are on an old address still.
func returned(p guest.TellAgain, connections []mptcp.Connection) map[uint32]bool {
	out, within := make(map[uint32]bool), time.Duration(p.SinceMS)*time.Millisecond
	for _, c := range connections {
		if c.Fallback || !slices.Contains(p.Away, c.Remote) || !reaches(p.AwaitJoin, c) {
			continue
		}
		if slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool {
			return s.State == mptcp.StateEstablished && slices.Contains(p.Old, s.Local.Addr()) &&
				(s.Unanswered == 0 && s.Silent < within || c.On(p.Addrs, mptcp.StateEstablished))
		}) {
			out[c.Token] = true
		}
	}
	return out
}

// filled says whether another announcement may bring one that follows already beyond what its kernel makes, or takes: it
// would take no address at the next move. Some take two (add_addr_accepted).
func filled(next []netip.Addr, connections []mptcp.Connection) bool {
	return slices.ContainsFunc(connections, func(c mptcp.Connection) bool {
		return c.On(next, mptcp.StateEstablished) && (fills(c, next) || places(c, next) > 1)
	})
}

// places are how many of what was announced c has taken there.
func places(c mptcp.Connection, next []netip.Addr) int {
	at := map[netip.AddrPort]bool{}
	for _, s := range c.Subflows {
		if s.Join && s.State != mptcp.StateClose && slices.Contains(next, s.Local.Addr()) {
			at[s.Local] = true
		}
	}
	return len(at)
}

// hasRoom says whether the kernel takes another endpoint, and there is none that an earlier time has left.
func (w *watch) hasRoom() bool {
	Tidy() // those that nobody needs any more
	endpoints, err := mptcp.Endpoints()
	return err == nil && len(endpoints) < mptcp.MaxEndpoints-keptFree && !slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool {
		return again(e) && slices.Contains(w.params.Addrs, e.Addr)
	})
}

// leaveOld has those that have come leave their old addresses, where their clients answer on a next one. They leave by
// themselves: others need these addresses.
func (w *watch) leaveOld() error {
	connections, err := mptcp.Connections()
	if err != nil {
		return err
	}
	var leaving []mptcp.Subflow
	for _, c := range connections {
		works := func(s mptcp.Subflow) bool {
			return s.State == mptcp.StateEstablished && s.Unanswered == 0 && slices.Contains(w.params.Addrs, s.Local.Addr())
		}
		if !w.only[c.Token] || !w.joined[c.Token] || !slices.ContainsFunc(c.Subflows, works) {
			continue
		}
		for _, s := range c.Subflows {
			if slices.Contains(w.params.Old, s.Local.Addr()) {
				leaving = append(leaving, s)
			}
		}
	}
	return mptcp.Abort(leaving...)
}
