package follow

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
)

// vacatedFor is how long after a withdrawal those who hear of it are told again: their kernels take note of it somewhat
// later, and refuse what comes before.
const vacatedFor = 300 * time.Millisecond

// vacate withdraws announcements of old addresses that nobody needs any more, for those that are behind. A peer that
// had as many subflows as its kernel makes, as it was told again for somebody else's sake or is known by both families,
// takes no address, also when it has room again, before one that it took is withdrawn (net/mptcp's accept_addr). some:
// there were any.
func (w *watch) vacate() (some bool) {
	endpoints, err := mptcp.Endpoints()
	if err != nil || len(w.vacant(endpoints, slices.Collect(maps.Values(w.behind)))) == 0 {
		return false // without a list of thousands
	}
	connections, err := mptcp.Connections()
	if err != nil {
		return false
	}
	for _, e := range w.vacant(endpoints, connections) {
		some = mptcp.DelEndpoint(e.ID, e.Addr) == nil || some
	}
	return some
}

// vacant are those of endpoints that may all go, and by each of which somebody has come who is behind now.
func (w *watch) vacant(endpoints []mptcp.Endpoint, connections []mptcp.Connection) (out []mptcp.Endpoint) {
	own := make(map[netip.AddrPort]bool) // ports of their own
	for _, e := range endpoints {
		own[netip.AddrPortFrom(e.Addr, e.Port)] = e.Port != 0
	}
	gone := func(mptcp.Subflow) bool { return false }
	for _, e := range endpoints {
		if e.Flags != mptcp.FlagSignal || !slices.Contains(w.params.Old, e.Addr) || e.Port != 0 && !again(e) {
			continue
		}
		by := func(s mptcp.Subflow) bool {
			return s.Local.Addr() == e.Addr && (s.Local.Port() == e.Port || e.Port == 0 && !own[s.Local])
		}
		before := gone
		without := func(s mptcp.Subflow) bool { return before(s) || by(s) }
		took := func(c mptcp.Connection) bool {
			_, behind := w.behind[c.Token]
			return behind && slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool { return s.Join && by(s) })
		}
		needs := func(c mptcp.Connection) bool { return slices.ContainsFunc(c.Subflows, by) && !w.lives(c, without) }
		if slices.ContainsFunc(connections, took) && !slices.ContainsFunc(connections, needs) {
			out, gone = append(out, e), without
		}
	}
	return out
}

// lives says whether c goes on without some of its subflows: it has another on which its client answers, or one on a
// new address.
func (w *watch) lives(c mptcp.Connection, without func(mptcp.Subflow) bool) bool {
	since := time.Since(w.from)
	return slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool {
		return s.State == mptcp.StateEstablished && s.FullyEstablished && s.Unanswered == 0 && !without(s) &&
			(slices.Contains(w.params.Addrs, s.Local.Addr()) || s.Silent < since)
	})
}
