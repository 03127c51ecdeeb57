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
		w.nudge()
		w.spare = nil // once: the next time is the host's affair
	}
	if len(w.joined)+len(w.used) == 0 {
		return guest.Joins{}, nil
	}
	if len(w.used) > 0 {
		defer Tidy()
		if err := w.follow(ctx, events, func(int, int) {}); err != nil {
			return guest.Joins{}, err
		}
	}
	if err := w.leaveOld(); err != nil {
		return guest.Joins{}, err
	}
	return w.outcome(), nil
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

// filled says whether another announcement would bring one that follows already beyond what its kernel makes: it would
// take no address at the next move.
func filled(next []netip.Addr, connections []mptcp.Connection) bool {
	return slices.ContainsFunc(connections, func(c mptcp.Connection) bool {
		return c.On(next, mptcp.StateEstablished) && fills(c, next)
	})
}

// hasRoom says whether the kernel takes another endpoint for each next address.
func (w *watch) hasRoom() bool {
	has := func() bool {
		endpoints, err := mptcp.Endpoints()
		return err == nil && len(endpoints)+len(w.params.Addrs) <= mptcp.MaxEndpoints-keptFree
	}
	if has() {
		return true
	}
	Tidy() // some may be left that nobody needs any more
	return has()
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
