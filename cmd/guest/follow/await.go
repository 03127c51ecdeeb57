// Package follow watches MPTCP connections change from one address to another.
package follow

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

const (
	// listEvery is how long nobody has come when the connections are listed, and how
	// often after that. It grows with the time that a listing takes, so that thousands of
	// connections cost no more than a tenth of the time. While they come, their events tell.
	listEvery = 300 * time.Millisecond
	// tellEvery is how often progress is told at most: an emulated guest has better things to do.
	tellEvery = 200 * time.Millisecond
	// unableListed bounds the list of those that stayed behind.
	unableListed = 200
)

// A watch is one AwaitJoin.
type watch struct {
	params  guest.AwaitJoin
	start   time.Time
	from    time.Time // who was heard since then is there
	limit   time.Duration
	behind  map[uint32]mptcp.Connection // by token: on an old address alone
	aside   int                         // of those that are apart
	only    map[uint32]bool             // others are not looked at; nil: all are
	stayed  map[uint32]bool             // the last time
	moves   *Moves
	again   map[uint32]bool             // of those that are behind: stayed or dialled, and their peers answer
	never   map[uint32]mptcp.Connection // fell back to TCP
	joined  map[uint32]bool
	ended   map[uint32]bool
	spare   []uint8
	used    []uint8
	nudges  int
	came    time.Time       // when somebody joined last; the start, before
	last    time.Time       // when the last of the joined came, by the kernel's list; zero: not known
	told    time.Time       // when those that are behind were to be told again last
	spoke   time.Time       // when that was possible; the start, before
	heard   map[uint32]bool // whose clients were, soon after that
	listing time.Duration
	quick   time.Duration // the quickest listing
	repeats time.Duration // see repeats
	pending int           // joins to a new address that the kernel is in the middle of
	crowded bool          // another announcement would fill up connections that have joined
	roomy   bool          // peers that took none were given room since they were told
}

// Await carries out guest.AwaitJoin: it returns when nobody is behind, at the
// limit, or with ctx's error, and earlier where those that are behind are among stayed, of which it keeps the next.
// moves knows whose client has left an address. progress is told how many have joined, of how many.
func Await(ctx context.Context, params guest.AwaitJoin, stayed *Stayed, moves *Moves, progress func(joined, total int)) (guest.Joins, error) {
	w := newWatch(params, moves)
	w.stayed = stayed.last()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := w.begin(watching)
	if err == nil {
		err = w.follow(ctx, events, progress)
	}
	if err != nil {
		return guest.Joins{}, err
	}
	stayed.keep(w)
	progress(len(w.joined), w.total())
	return w.outcome(), nil
}

func newWatch(params guest.AwaitJoin, moves *Moves) *watch {
	now := time.Now()
	return &watch{params: params, start: now, from: now, came: now, spoke: now, limit: time.Duration(params.LimitMS) * time.Millisecond,
		joined: make(map[uint32]bool), ended: make(map[uint32]bool), spare: params.SpareIDs, repeats: repeats(), moves: moves}
}

// begin lists for the first time. Events first, the list after: what happens between the two is seen twice.
func (w *watch) begin(ctx context.Context) (<-chan mptcp.Event, error) {
	events, err := mptcp.Events(ctx, mptcp.SubEstablished, mptcp.Closed)
	if err != nil {
		return nil, err
	}
	return events, w.list()
}

// follow returns when nobody is behind, or nobody who may still come, or at the limit.
func (w *watch) follow(ctx context.Context, events <-chan mptcp.Event, progress func(joined, total int)) error {
	for settled := false; !settled; {
		if err := w.wait(ctx, events, progress); err != nil {
			return err
		}
		if len(w.joined) == 0 || w.waits() { // or the limit passed
			return nil
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		settled = !w.waits()
	}
	return nil
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
	complete := true // what the events tell
	for w.waits() {
		select {
		case event, open := <-events:
			if !open {
				events, complete = nil, false // only ctx ends it, or the kernel; the lists go on
				break
			}
			if w.take(event) {
				complete = false
				list.Reset(0)
			}
		case <-list.C:
			if quiet := time.Since(w.came); complete && quiet < listEvery {
				list.Reset(listEvery - quiet)
				break
			}
			if err := w.list(); err != nil {
				return err
			}
			complete = events != nil
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
	w.aside, w.last = 0, time.Time{}
	w.behind, w.never, w.again = make(map[uint32]mptcp.Connection), make(map[uint32]mptcp.Connection), make(map[uint32]bool)
	alive := make(map[uint32]bool, len(connections))
	for _, c := range connections {
		alive[c.Token] = true
		switch {
		case w.only != nil && !w.only[c.Token]:
		case c.On(w.params.Addrs, mptcp.StateEstablished):
			// A connection that never was on an old address is none of ours.
			if _, was := before[c.Token]; was {
				w.joined[c.Token], w.came = true, begin
			} else if c.On(w.params.Old) {
				w.joined[c.Token] = true
			}
			if w.joined[c.Token] {
				w.crowded = w.crowded || fills(c, w.params.Addrs)
				w.last = latest(w.last, begin.Add(-existed(c, w.params.Addrs)))
			}
		case !c.On(w.params.Old, mptcp.StateEstablished, mptcp.StateCloseWait):
		case c.Fallback:
			w.never[c.Token] = c
		default:
			delete(w.joined, c.Token) // its new subflow broke again
			w.behind[c.Token] = c
			w.hear(c)
			if w.apart(c) {
				w.aside++
			} else if (w.stayed[c.Token] || c.Dialled) && w.answers(c) {
				w.again[c.Token] = true
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

// existed is for how long c has a subflow on one of addrs, at least. What the kernel knows of its age is nearer to the
// truth than when the event was heard: an emulated guest has other work for tens of milliseconds.
func existed(c mptcp.Connection, addrs []netip.Addr) (age time.Duration) {
	for _, s := range c.Subflows {
		if s.State == mptcp.StateEstablished && slices.Contains(addrs, s.Local.Addr()) {
			age = max(age, s.Exists)
		}
	}
	return age
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *watch) outcome() guest.Joins {
	joins := guest.Joins{Total: w.total(), Joined: len(w.joined), Ended: len(w.ended), Endpoints: w.used,
		WaitedMS: time.Since(w.start).Milliseconds()}
	if !w.last.IsZero() {
		joins.LastMS = time.Since(w.last).Milliseconds()
	}
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
	case !w.heard[c.Token]:
		return guest.WhyAway
	case c.Dialled:
		return guest.WhyDialled
	case w.again[c.Token]:
		return guest.WhyUnjoinedAgain
	}
	return guest.WhyUnjoined(w.limit)
}
