package evacuate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
)

// Host is the agent of the host that is evacuated; *agent.Client is one.
type Host interface {
	Planner
	Host(context.Context) (api.HostInfo, error)
	Migrate(context.Context, migration.Request) (id string, err error)
	Events(ctx context.Context, id string, after int) (record.EventsAnswer, error)
	Report(ctx context.Context, id string) (record.Report, error)
	Reports(ctx context.Context) ([]record.Report, error)
	SetBandwidth(ctx context.Context, id string, bits int64) error
}

// Request is how a host is evacuated.
type Request struct {
	To        string            // site or host; "": wherever a guest fits best
	Like      migration.Request // of every guest's migration; its guest, destination and bandwidth are not looked at
	Bandwidth int64             // bit/s of all migrations together; 0: unlimited
	Width     int               // migrations at once
	DryRun    bool              // ask and choose only

	Tell func(Guest) // hears of each change of a guest, one at a time
}

// Guest is what becomes of one guest.
type Guest struct {
	Guest     string             `json:"guest"`
	To        string             `json:"to"`        // host; "": it stays
	Migration string             `json:"migration"` // id; "": none began
	Phase     migration.Phase    `json:"-"`         // that has begun
	Outcome   migration.Outcome  `json:"outcome"`   // "": none yet, or a dry run
	Reason    string             `json:"reason,omitempty"`
	Predicted *record.Prediction `json:"predicted"`
	TotalS    *float64           `json:"total_s"`
}

// Moved says whether it is away.
func (g Guest) Moved() bool { return g.Outcome == migration.Completed }

// Result is what became of all guests, by name.
type Result struct {
	Host   string  `json:"host"`
	DryRun bool    `json:"dry_run"`
	OK     bool    `json:"ok"` // all guests have moved; of a dry run: all have a destination
	Guests []Guest `json:"guests"`
}

// Run moves every guest of the host away, and returns when each has an outcome or a reason
// why it has none. When ctx ends no migration begins any more; those under way go on without
// the caller, and their guests' reasons say so. A guest that is busy with another
// migration is waited for; one that arrives meanwhile is moved, too. The error is for an
// evacuation that could not begin.
func Run(ctx context.Context, host Host, req Request) (Result, error) {
	like := req.Like
	if like.Guest = ""; like.Bandwidth == 0 {
		like.Bandwidth = req.Bandwidth
	}
	if err := like.Check(); err != nil {
		return Result{}, err
	}
	earlier, err := host.Reports(ctx)
	if err != nil {
		return Result{}, err
	}
	info, err := host.Host(ctx)
	if err != nil {
		return Result{}, err
	}
	hosts, err := Destinations(info, req.To, []string{info.Host})
	if err != nil {
		return Result{}, err
	}
	e := &evacuation{host: host, name: info.Host, earlier: map[string]bool{}, req: req, hosts: hosts, guests: map[string]*Guest{}, running: map[string]int64{}}
	for _, rep := range earlier {
		e.earlier[rep.ID] = true
	}
	for err == nil {
		if more := e.round(ctx, info); !more {
			break
		}
		info, err = e.look(ctx, info)
	}
	return e.result(), nil
}

type evacuation struct {
	host    Host
	name    string
	earlier map[string]bool // migrations of before, by id: no time tells, as the host's clock may be set back meanwhile
	req     Request
	hosts   []string // destinations

	mu      sync.Mutex
	guests  map[string]*Guest // by name; one that has an outcome or a reason is done with
	full    map[string]bool   // guests that a host had no room for in this round; see noteFull
	running map[string]int64  // migrations of ours, by id: the bandwidth that each was told last, bit/s
	sharing sync.Mutex        // held while they are told: the last word is the right one
	left    int               // moves of this round that have not begun
	moving  int               // moves that have, and are not over
}

// round moves the guests that nothing was done about yet, or waits for one that is busy;
// more says that there may be others.
func (e *evacuation) round(ctx context.Context, info api.HostInfo) (more bool) {
	var idle []api.GuestInfo
	var busy api.GuestInfo
	for _, g := range info.Guests {
		known := e.of(g.Name)
		switch {
		case known.Outcome != "" || known.Reason != "":
		case g.Migration == "":
			idle = append(idle, g)
		case e.req.DryRun:
			e.set(g.Name, func(x *Guest) { x.Reason = "it is busy with " + BusyWith(g.Migration) })
		case known.Migration != g.Migration:
			e.set(g.Name, func(x *Guest) { x.Migration = g.Migration })
			busy = g
		default:
			busy = g
		}
	}
	if len(idle) > 0 {
		e.move(ctx, idle)
		return ctx.Err() == nil && !e.req.DryRun
	}
	e.settleGone(ctx, info)
	if busy.Name != "" {
		e.awaitOther(ctx, busy)
		return ctx.Err() == nil
	}
	e.cameBack(info)
	return false
}

// cameBack says of guests that have moved, and are here all the same, that they are not away. They are not moved again:
// of two hosts that are evacuated to each other none would come to an end.
func (e *evacuation) cameBack(info api.HostInfo) {
	for _, g := range info.Guests {
		if known := e.of(g.Name); known.Moved() {
			e.set(g.Name, func(x *Guest) {
				*x = Guest{Guest: x.Guest, To: x.To, Reason: fmt.Sprintf("it has moved there, and is on %s again: somebody has brought it back, such as an evacuation of %s", e.name, x.To)}
			})
		}
	}
}

// move asks about guests and moves them.
func (e *evacuation) move(ctx context.Context, guests []api.GuestInfo) {
	for _, g := range guests {
		e.set(g.Name, func(x *Guest) { x.Migration = "" })
	}
	like := e.req.Like
	like.Bandwidth = e.share(len(guests))
	moves := Ask(ctx, e.host, guests, e.hosts, like, e.req.Width)
	e.left, e.full = len(moves), map[string]bool{}
	for _, m := range moves {
		if len(m.To) == 0 && e.busyNow(ctx, m.Guest) {
			continue // by somebody since this round began: the next waits for that
		}
		e.set(m.Guest, func(x *Guest) {
			if len(m.To) == 0 {
				x.Reason = m.Why
				return
			}
			x.To, x.Predicted = m.To[0].Host, m.To[0].Predicted
		})
	}
	if e.req.DryRun {
		return
	}
	Each(ctx, e.req.Width, len(moves), func(i int) {
		e.begin(ctx, moves[i])
	})
	e.askAgain(ctx, moves)
}

// begin moves one guest to the best destination that does not refuse.
func (e *evacuation) begin(ctx context.Context, m Move) {
	e.mu.Lock()
	e.left--
	e.moving++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.moving--
		e.mu.Unlock()
		e.shareOut(ctx)
	}()
	for _, to := range m.To {
		e.set(m.Guest, func(x *Guest) { *x = Guest{Guest: m.Guest, To: to.Host, Predicted: to.Predicted} })
		if again := e.migrate(ctx, m.Guest, to); !again || ctx.Err() != nil {
			return
		}
	}
}

// ownRefusal says that a refusal is none of the destination's: its guest would be refused by every
// other one, or somebody does not want it to move.
func ownRefusal(err error) bool {
	var p *migration.Problem
	return errors.As(err, &p) && slices.Contains([]migration.Code{
		migration.CodeGuest, migration.CodeGuestGone, migration.CodeUnknownGuest, migration.CodeHook, migration.CodeAsked,
	}, p.Code)
}

// migrate moves one guest to one host, and says whether another may take it. A refusal is the
// guest's outcome until another is tried: it is told, and the last one stays.
func (e *evacuation) migrate(ctx context.Context, name string, to Destination) (again bool) {
	req := e.req.Like
	req.Guest, req.To = name, to.Host
	e.mu.Lock()
	req.Bandwidth = e.share(e.moving + e.left)
	e.mu.Unlock()
	id, err := e.ask(context.WithoutCancel(ctx), req) // what has begun must have a name
	if err != nil && e.busyNow(ctx, name) {           // as above
		e.set(name, func(x *Guest) { *x = Guest{Guest: name} })
		return false
	}
	if err != nil {
		e.set(name, func(x *Guest) { x.Outcome, x.Reason = migration.Refused, err.Error() })
		var why *migration.Problem
		errors.As(err, &why)
		e.noteFull(name, migration.Refused, why)
		return !ownRefusal(err)
	}
	e.mu.Lock()
	e.running[id] = req.Bandwidth
	e.mu.Unlock()
	e.shareOut(ctx)
	defer func() {
		e.mu.Lock()
		delete(e.running, id)
		e.mu.Unlock()
	}()
	e.set(name, func(x *Guest) { x.Migration = id })
	rep, err := e.follow(ctx, id, false, func(p migration.Phase) { e.set(name, func(x *Guest) { x.Phase = p }) })
	switch {
	case ctx.Err() != nil: // result says it
	case err != nil:
		e.set(name, func(x *Guest) {
			x.Reason = fmt.Sprintf("what became of migration %s is not known: %v", id, err)
		})
	default:
		e.outcome(name, rep)
		e.noteFull(name, rep.Outcome, rep.Problem)
		return rep.Outcome == migration.Refused && (rep.Problem == nil || !ownRefusal(rep.Problem))
	}
	return false
}

// ask has a migration begin. Where the answer is lost the agent says what it knows of the guest: a migration that
// has begun is this one, or goes first; where none has it is asked once more.
func (e *evacuation) ask(ctx context.Context, req migration.Request) (id string, err error) {
	once := func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, agentPatience)
		defer cancel()
		return e.host.Migrate(ctx, req)
	}
	if id, err = once(); !api.Unanswered(err) {
		return id, err
	}
	info, silent := e.look(ctx, api.HostInfo{})
	if silent != nil {
		return "", err
	}
	i := slices.IndexFunc(info.Guests, func(g api.GuestInfo) bool { return g.Name == req.Guest })
	if i >= 0 && info.Guests[i].Migration == "" {
		return once()
	}
	if i >= 0 {
		return info.Guests[i].Migration, nil
	}
	return e.lastOf(ctx, req.Guest, err) // it has left already
}

// lastOf is the last migration by which a guest left that did not begin before the evacuation; lost: what there is to
// say where none is known, as then it is not known what became of it.
func (e *evacuation) lastOf(ctx context.Context, guest string, lost error) (id string, err error) {
	all, err := e.host.Reports(ctx)
	for _, rep := range all { // the newest first
		if rep.Guest == guest && rep.From == e.name && !e.earlier[rep.ID] {
			return rep.ID, nil
		}
	}
	return "", errors.Join(lost, err)
}

// errStartedAgain: the agent that tells a migration's story was started again, and what it does with the guest may be
// something else now.
var errStartedAgain = errors.New("the host's agent was started again")

// follow hears a migration's story until its outcome, also doubt, which nobody here ends, or, where only of one life of
// its agent is asked, until that ends.
func (e *evacuation) follow(ctx context.Context, id string, oneLife bool, phase func(migration.Phase)) (record.Report, error) {
	after, born, left := 0, int64(0), patience{}
	seen := map[migration.Phase]bool{}
	for {
		part, err := e.host.Events(ctx, id, after)
		if err == nil && part.Born != born && born != 0 {
			if oneLife {
				return record.Report{}, errStartedAgain
			}
			after = 0
		}
		if err == nil {
			born = part.Born
		}
		for _, ev := range part.Events {
			after = ev.N
			if ev.Kind == "phase" && !seen[ev.Phase] {
				seen[ev.Phase] = true
				phase(ev.Phase)
			}
		}
		var rep record.Report
		if err == nil {
			rep, err = e.host.Report(ctx, id)
		}
		switch {
		case err == nil && (part.Over || rep.Outcome == migration.InDoubt):
			return rep, nil
		case ctx.Err() != nil:
			return record.Report{}, ctx.Err()
		case err == nil:
			left = patience{}
		case left.over():
			return record.Report{}, err
		default:
			clock.Sleep(ctx, tryPause)
		}
	}
}

// shareOut tells each migration under way its share of the bandwidth, where that is another
// than it was told last.
func (e *evacuation) shareOut(ctx context.Context) {
	if e.req.Bandwidth == 0 || ctx.Err() != nil {
		return
	}
	e.sharing.Lock()
	defer e.sharing.Unlock()
	e.mu.Lock()
	share := e.share(e.moving + e.left)
	var others []string
	for id, told := range e.running {
		if told != share {
			others = append(others, id)
			e.running[id] = share
		}
	}
	e.mu.Unlock()
	for _, id := range others {
		e.host.SetBandwidth(ctx, id, share) //nolint:errcheck // it may have ended just now, or has a transfer that keeps its first limit
	}
}

// share is the bandwidth of one of so many migrations that are under way or wait; 0: no limit.
func (e *evacuation) share(n int) int64 {
	if e.req.Bandwidth == 0 {
		return 0
	}
	return max(e.req.Bandwidth/int64(max(min(n, e.req.Width), 1)), migration.LeastBandwidth)
}
