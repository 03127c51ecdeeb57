// Package follow watches MPTCP connections change from one address to another.
package follow

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

const (
	// listEvery is how often the connections are listed although no event came. It
	// grows with the time that a listing takes, so that thousands of connections
	// cost no more than a tenth of the time.
	listEvery = 300 * time.Millisecond
	// tellEvery is how often progress is told at most.
	tellEvery = 50 * time.Millisecond
	// nudgeAfter is how long a connection may stay behind all others before its peer is
	// told again (an announcement is a bare acknowledgement: it can get lost). While
	// others still come it is too early: everybody would hear of it, and thousands
	// would join once more.
	nudgeAfter = 1500 * time.Millisecond
	// nudgeSlow is nudgeAfter in terms of the quickest listing, where that is longer: it is so in
	// a guest with many connections, or a slow one, which has joins to answer first.
	nudgeSlow = 10
	// unableListed bounds the list of those that stayed behind.
	unableListed = 200
)

// A watch is one AwaitJoin.
type watch struct {
	params  guest.AwaitJoin
	start   time.Time
	limit   time.Duration
	behind  map[uint32]mptcp.Connection // by token: on an old address alone
	aside   int                         // of those that are apart
	never   map[uint32]mptcp.Connection // fell back to TCP
	joined  map[uint32]bool
	ended   map[uint32]bool
	spare   []uint8
	used    []uint8
	nudges  int
	came    time.Time // when somebody joined last; the start, before
	listing time.Duration
	quick   time.Duration // the quickest listing
	pending int           // joins to a new address that the kernel is in the middle of
	crowded bool          // another announcement would fill up connections that have joined
}

// Await carries out guest.AwaitJoin: it returns when nobody is behind, at the
// limit, or with ctx's error. progress is told how many have joined, of how many.
func Await(ctx context.Context, params guest.AwaitJoin, progress func(joined, total int)) (guest.Joins, error) {
	now := time.Now()
	w := &watch{params: params, start: now, came: now, limit: time.Duration(params.LimitMS) * time.Millisecond,
		joined: make(map[uint32]bool), ended: make(map[uint32]bool), spare: params.SpareIDs}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	// Events first, the list after: what happens between the two is seen twice.
	events, err := mptcp.Events(watching)
	if err != nil {
		return guest.Joins{}, err
	}
	if err := w.list(); err != nil {
		return guest.Joins{}, err
	}
	for settled := false; !settled; {
		if err := w.wait(ctx, events, progress); err != nil {
			return guest.Joins{}, err
		}
		if len(w.joined) == 0 || w.waits() { // or the limit passed
			break
		}
		if err := w.settle(ctx); err != nil {
			return guest.Joins{}, err
		}
		settled = !w.waits()
	}
	w.tidy()
	progress(len(w.joined), w.total())
	return w.outcome(), nil
}

// settleTime is how long new subflows are looked at before they are relied upon: one that
// breaks does so with its first data.
const settleTime = 100 * time.Millisecond

// settle looks once more a little later.
func (w *watch) settle(ctx context.Context) error {
	select {
	case <-time.After(settleTime):
		return w.list()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *watch) total() int { return len(w.joined) + len(w.ended) + len(w.behind) + len(w.never) }

func (w *watch) wait(ctx context.Context, events <-chan mptcp.Event, progress func(joined, total int)) error {
	limit := time.NewTimer(max(0, w.limit-time.Since(w.start)))
	defer limit.Stop()
	nudge := time.NewTimer(nudgeAfter)
	defer nudge.Stop()
	list := time.NewTimer(listEvery)
	defer list.Stop()
	var told time.Time
	for w.waits() {
		select {
		case event, open := <-events:
			if !open {
				events = nil // only ctx ends it, or the kernel; the lists go on
				break
			}
			if w.take(event) {
				list.Reset(0)
			}
		case <-list.C:
			if err := w.list(); err != nil {
				return err
			}
			list.Reset(max(listEvery, 10*w.listing))
		case now := <-nudge.C:
			nudge.Reset(w.nudgeWhenDue(now))
		case <-limit.C:
			return w.list()
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			progress(len(w.joined), w.total())
		}
	}
	return nil // by events, perhaps: the kernel's list, which has the last word, is settle's
}

// take follows one event. It asks for a new list when events were lost.
func (w *watch) take(event mptcp.Event) (list bool) {
	switch event.Kind {
	case mptcp.Lost:
		return true
	case mptcp.SubEstablished:
		if slices.Contains(w.params.Addrs, event.Local.Addr()) && w.leaves(event.Token) {
			w.joined[event.Token] = true
			w.came = time.Now()
		}
	case mptcp.Closed:
		if w.leaves(event.Token) {
			w.ended[event.Token] = true
		}
	}
	return false
}

// list sorts the connections anew.
func (w *watch) list() error {
	begin := time.Now()
	connections, plain, err := mptcp.All()
	if err != nil {
		return err
	}
	w.listing, w.pending, w.crowded = time.Since(begin), 0, false
	if w.quick == 0 || w.listing < w.quick {
		w.quick = w.listing
	}
	for _, s := range plain { // a join is no subflow before the third packet of its handshake
		if s.State == mptcp.StateSynRecv && slices.Contains(w.params.Addrs, s.Local.Addr()) {
			w.pending++
		}
	}
	before := w.behind
	w.aside = 0
	w.behind, w.never = make(map[uint32]mptcp.Connection), make(map[uint32]mptcp.Connection)
	alive := make(map[uint32]bool, len(connections))
	for _, c := range connections {
		alive[c.Token] = true
		switch {
		case c.On(w.params.Addrs, mptcp.StateEstablished):
			// A connection that never was on an old address is none of ours.
			if _, was := before[c.Token]; was {
				w.joined[c.Token], w.came = true, begin
			} else if c.On(w.params.Old) {
				w.joined[c.Token] = true
			}
			w.crowded = w.crowded || w.joined[c.Token] && fills(c, w.params.Addrs)
		case !c.On(w.params.Old, mptcp.StateEstablished, mptcp.StateCloseWait):
		case c.Fallback:
			w.never[c.Token] = c
		default:
			delete(w.joined, c.Token) // its new subflow broke again
			w.behind[c.Token] = c
			if w.apart(c) {
				w.aside++
			}
		}
	}
	for token := range before {
		if !alive[token] {
			w.ended[token] = true
		}
	}
	return nil
}

// nudgeWhenDue nudges, if nobody has come for long and nobody is about to, and says when to
// look again.
func (w *watch) nudgeWhenDue(now time.Time) time.Duration {
	patience := max(nudgeAfter, nudgeSlow*w.quick)
	if wait := patience - now.Sub(w.came); wait > 0 {
		return wait
	}
	if w.pending == 0 {
		w.nudge()
	}
	return patience
}

// replaceAt is the nudge that replaces an endpoint nobody came to.
const replaceAt = 3

// nudge announces again, under a fresh id, for those that are behind: with a port of
// its own, where the kernel listens, which also reaches connections whose listener is
// gone. If nobody has come although it was done twice (a firewall may not know that
// port), the endpoint itself is replaced. Earlier, or later, that would cut the
// subflows of those who come or came.
func (w *watch) nudge() {
	w.nudges++
	_ = mptcp.Abort(w.deaf()...)   // those that stay are told all the same
	if w.crowded && w.nudges > 1 { // once everybody is told, whoever has come
		return
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return
	}
	w.spare = slices.DeleteFunc(w.spare, func(id uint8) bool { // somebody else gave it to an endpoint
		return slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.ID == id })
	})
	for _, e := range endpoints {
		if !slices.Contains(w.params.Addrs, e.Addr) || e.Port != 0 || len(w.spare) == 0 || !w.behindIn(e.Addr) {
			continue
		}
		fresh := mptcp.Endpoint{ID: w.spare[0], Addr: e.Addr, Dev: e.Dev, Flags: mptcp.FlagSignal}
		w.spare = w.spare[1:]
		var err error
		if len(w.joined) == 0 && w.nudges == replaceAt {
			_ = mptcp.DelEndpoint(e.ID, e.Addr)
			err = mptcp.AddEndpoint(fresh)
		} else {
			err = addWithPort(fresh)
		}
		// What cannot be announced again is reported as left behind.
		if err == nil {
			w.used = append(w.used, fresh.ID)
		}
	}
}

// mostSubflows is how many a connection may come to have: one below the most that kernels take beside the first (8, net/mptcp's
// protocol.h). Peers that had been full were seen to take no address any more, also when they had room again.
const mostSubflows = 8

// fills says whether another announcement may bring a connection that has joined beyond mostSubflows: whoever meshes joins
// from each of its addresses again.
func fills(c mptcp.Connection, next []netip.Addr) bool {
	live, from := 0, map[netip.Addr]bool{}
	for _, s := range c.Subflows {
		if s.State == mptcp.StateClose {
			continue
		}
		if live++; slices.Contains(next, s.Local.Addr()) {
			from[s.Remote.Addr()] = true
		}
	}
	return live+len(from) > mostSubflows
}

// deafAfter is how many times a subflow has sent again without an answer.
const deafAfter = 2

// deaf are subflows of those that are behind whose client does not answer there any more,
// where it does on another: it has moved itself. The kernel announces by the first subflow
// that is established, which may be such a one for as long as it keeps sending again. All
// of them are withdrawn with the old address anyway.
func (w *watch) deaf() []mptcp.Subflow {
	var deaf []mptcp.Subflow
	for _, c := range w.behind {
		var silent []mptcp.Subflow
		answered := false
		for _, s := range c.Subflows {
			switch {
			case s.State != mptcp.StateEstablished || !slices.Contains(w.params.Old, s.Local.Addr()):
			case s.Unanswered >= deafAfter:
				silent = append(silent, s)
			case s.Unanswered == 0 && s.FullyEstablished:
				answered = true
			}
		}
		if answered {
			deaf = append(deaf, silent...)
		}
	}
	return deaf
}

// tidy withdraws the announcements with a port of their own that nobody depends on:
// each takes a place of the few that there are, and peers that had come already may
// have made one more subflow there, which counts against their limits at the next
// move. What it cannot find out it leaves.
func (w *watch) tidy() {
	if len(w.used) == 0 {
		return
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return
	}
	connections, err := mptcp.Connections()
	if err != nil {
		return
	}
	for _, e := range endpoints {
		if e.Port == 0 || !slices.Contains(w.used, e.ID) {
			continue
		}
		if !slices.ContainsFunc(connections, func(c mptcp.Connection) bool { return depends(c, e) }) {
			_ = mptcp.DelEndpoint(e.ID, e.Addr)
		}
	}
}

// depends says whether c has a working subflow on the address and port of e, and on
// the same address none by another port.
func depends(c mptcp.Connection, e mptcp.Endpoint) bool {
	by, beside := false, false
	for _, s := range c.Subflows {
		if s.State != mptcp.StateEstablished || s.Local.Addr() != e.Addr {
			continue
		}
		by, beside = by || s.Local.Port() == e.Port, beside || s.Local.Port() != e.Port
	}
	return by && !beside
}

// The kernel listens for late joins on one of these ports: nudgePort plus the
// endpoint's id, or, where that is in use, a multiple of 256 further on.
const (
	nudgePort  = 61000
	nudgeTries = 8
)

func addWithPort(e mptcp.Endpoint) (err error) {
	for try := range uint16(nudgeTries) {
		e.Port = nudgePort + uint16(e.ID) + 256*try
		if err = mptcp.AddEndpoint(e); err == nil {
			return nil
		}
	}
	return err
}

// behindIn says whether somebody of the address's family is behind.
func (w *watch) behindIn(addr netip.Addr) bool {
	for _, c := range w.behind {
		if c.Local.Addr().Is4() == addr.Is4() {
			return true
		}
	}
	return false
}

func (w *watch) outcome() guest.Joins {
	joins := guest.Joins{Total: w.total(), Joined: len(w.joined), Ended: len(w.ended), Endpoints: w.used,
		WaitedMS: time.Since(w.start).Milliseconds()}
	for _, group := range []map[uint32]mptcp.Connection{w.never, w.behind} {
		for _, c := range group {
			if len(joins.Unable) == unableListed {
				joins.Omitted++
				continue
			}
			joins.Unable = append(joins.Unable, guest.Unable{Local: c.Local, Remote: c.Remote, Why: w.why(c)})
		}
	}
	slices.SortFunc(joins.Unable, func(a, b guest.Unable) int { return a.Remote.Compare(b.Remote) })
	return joins
}

func (w *watch) why(c mptcp.Connection) string {
	switch {
	case c.Fallback:
		return "fell back to plain TCP"
	case w.apart(c):
		return guest.WhyApart(c.Remote.Addr())
	case !slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool { return s.FullyEstablished }):
		return "not fully established: no data went both ways yet"
	case c.AddAddrSignalled == 0:
		return "the new address was never announced to it"
	}
	return fmt.Sprintf("the peer did not join within %v: its limits, a firewall, or a lost path", w.limit)
}
