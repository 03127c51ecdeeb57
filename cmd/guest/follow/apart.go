package follow

import (
	"slices"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// waits says whether somebody is behind who may still come.
func (w *watch) waits() bool {
	return len(w.behind) > w.aside+len(w.again) || w.aside > 0 && time.Since(w.start) < guest.ApartFor ||
		len(w.again) > 0 && (w.pending > 0 || w.told.Before(w.came) || time.Since(w.told) < toldFor)
}

// apart says whether no address by which the client of c is known reaches one that is announced.
func (w *watch) apart(c mptcp.Connection) bool { return !reaches(w.params, c) }

// reaches says whether an address by which the client of c is known reaches one that p announces.
func reaches(p guest.AwaitJoin, c mptcp.Connection) bool {
	return p.Reaches(c.Remote.Addr()) || slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool { return p.Reaches(s.Remote.Addr()) })
}

// leaves takes one from those that are behind.
func (w *watch) leaves(token uint32) (was bool) {
	c, was := w.behind[token]
	if was && w.apart(c) {
		w.aside--
	}
	delete(w.behind, token)
	delete(w.again, token)
	return was
}
