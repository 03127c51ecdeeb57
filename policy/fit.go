// Package policy decides: whether a migration can meet its budget, when what is
// left of memory fits the downtime, and what a migration will cost. It computes
// only; time and measurements are arguments.
package policy

import (
	"cmp"
	"time"
)

const (
	// tail is what downtime cannot avoid, bytes: the device state of a q35 guest on
	// QEMU 7.2 … 10.0 (measured 81 … 127 KB; rounded up).
	tail = 256 << 10
	// PackedTail is that as our own data path sends it (measured 6.7 KB; rounded up).
	PackedTail = 32 << 10
)

// load is how long a destination QEMU takes from its last byte until it can run the guest.
const load = 10 * time.Millisecond

// converging is the share of what the paths carry that a guest may rewrite, for rounds
// that get shorter fast enough (each is that share of the one before).
const converging = 0.8

// Converges says whether copying again and again can come to an end: a guest that rewrites
// dirty bytes per second, of which a page counts once, over paths that carry so many. It
// is so where either is not known (0).
func Converges(dirty, carried int64) bool {
	return dirty == 0 || carried == 0 || float64(dirty) < converging*float64(carried)
}

// calm is the share of what the paths carry below which a first, short look is believed.
const calm = 0.25

// Calm says whether a guest that wrote dirty bytes per second in a fraction of a second surely
// Converges in what a longer look would tell: the longer, the more of what is written is
// written again, and counts once.
func Calm(dirty, carried int64) bool {
	return dirty == 0 || carried == 0 || float64(dirty) < calm*float64(carried)
}

// Look is one look at a migration's memory.
type Look struct {
	At time.Duration // since the copy began, as Clock counts it
	// Turn counts the moments at which a decision may fall: each round begins one; by our own data path, where rounds
	// follow each other within milliseconds, one begins every so often.
	Turn      int64
	Round     int64 // over the memory, as the hypervisor counts them; 0: as Turn
	Remaining int64 // bytes unsent or dirty at the last count, as they are sent
	Left      int64 // the same, as the guest has them; 0: as Remaining
	// Read counts versions of pages that our own data path has from the hypervisor, but for those that are as before,
	// and those that newer ones replaced unsent; Sent are those of them that arrived, or are kept back for the pause.
	Read, Sent uint64
	DirtyRate  int64 // bytes per second, a page once in half a second at most; 0: not known
	// Goodput is how many bytes per second, of the kind of Remaining, the paths can carry: as
	// measured while there was enough to send. A time with little to send must not lower it,
	// or the tail would be foreseen to take longer than it does. 0: unknown.
	Goodput int64
	Tail    int64 // bytes of device state that follow, as they are sent; 0: as QEMU writes it
	// Work is how long what remains takes to handle, where that is longer than its bytes take; see Handling.
	Work time.Duration
	// Kept is the share of what remains that is kept back for the pause, as it is written again and again: no round
	// makes it less.
	Kept float64
	// Release is how long the release is on its way, beside the last of memory, and maybe over a longer path; 0: no
	// longer than that.
	Release time.Duration
	// Disks is how long disks take to be in sync once the guest is stopped, before the last of memory.
	Disks time.Duration
	// Pause is one pause of a throttled guest: it may have stood still for so long when it is stopped.
	Pause time.Duration
}

func (l Look) tail() int64 { return cmp.Or(l.Tail, tail) }

// Downtime is how long the guest would stand still if it were stopped now; the last byte takes rtt/2 to get there.
func (l Look) Downtime(rtt time.Duration) time.Duration {
	var sent time.Duration
	if l.Goodput > 0 {
		sent = seconds(float64(l.Remaining+l.tail()) / float64(l.Goodput))
	}
	return load + l.Pause + l.Disks + max(rtt/2+max(sent, l.Work), l.Release)
}

// fixed is the part of a pause that does not depend on what remains.
func (l Look) fixed(rtt time.Duration) time.Duration { return load + l.Pause + max(rtt/2, l.Release) }

// gain is by how much more rounds may shorten the pause, at most.
func (l Look) gain(rtt time.Duration) time.Duration {
	memory := l.Downtime(rtt) - l.Disks - l.fixed(rtt)
	return l.Disks + time.Duration(float64(memory)*(1-l.Kept))
}

// foresees is the share of what the paths carry that a guest may rewrite for a copy's end to be foreseen: what both say
// is about right, and above it their difference says nothing.
const foresees = 0.95

// TimeLeft is how long it takes until nothing is left, with what is written meanwhile: written bytes per second, as they
// are sent (0: not known). 0: nobody knows, or that is more than goes.
func (l Look) TimeLeft(written int64) time.Duration {
	if float64(written) >= foresees*float64(l.Goodput) {
		return 0
	}
	return seconds(float64(l.Remaining) / float64(l.Goodput-written))
}

// Least is the shortest pause there can be, when no page of memory is left to send: half a round trip, the load, and
// the devices' state of tail bytes as they are sent (0: as QEMU writes it) over paths that carry rate bytes per second
// (0: not known).
func Least(rtt time.Duration, tail, rate int64) time.Duration {
	return Look{Goodput: rate, Tail: tail}.Downtime(rtt)
}

// Allow is a downtime budget for a guest whose shortest pause is least: beside that there is room for as many pages
// as are not worth another round.
func Allow(least time.Duration) time.Duration {
	const step = 10 * time.Millisecond
	return (least + hardlyShorter + step - 1).Truncate(step)
}

// stretched is the pause, in budgets, that may be foreseen just before the guest is stopped: looks differ by as much.
const stretched = 1.5

// Stretched says whether a guest that was about to be stopped has written so much since that its pause would be
// longer than budget by far.
func (l Look) Stretched(rtt, budget time.Duration) bool {
	return float64(l.Downtime(rtt)) > stretched*float64(budget)
}

// InSync is how long the disks of a stopped guest take to be in sync when left bytes of them differ: over paths of
// which the slowest carries rate bytes per second (0: not known), and with the answer to what was sent last.
func InSync(left, rate int64, rtt time.Duration) time.Duration {
	switch {
	case left == 0:
		return 0
	case rate == 0:
		return rtt
	}
	return rtt + seconds(float64(left)/float64(rate))
}

// Copying watches one copy and says when to switch over.
type Copying struct {
	Budget time.Duration
	RTT    time.Duration
	Limit  time.Duration // of a copy that comes no nearer to its end; 0: no limit

	turn  int64         // the last seen
	last  time.Duration // downtime foreseen at the beginning of the last turn; 0: none was yet
	best  time.Duration // the shortest of them
	work  time.Duration // Look.Work of that
	stale int           // turns one after the other that did not better it

	round   int64         // the last seen
	before  time.Duration // downtime foreseen as this one began; 0: none was
	shorter bool          // it is shorter than the one before
	begun   time.Duration // downtime foreseen as the last round began that came nearer to the end; 0: none but the first
	fewest  int64         // Left as a round but the first began, the fewest of them; 0: none has
	least   int64         // Left, at its least in this round; 0 where that is no shorter one
	gained  time.Duration // when it last came nearer to its end
	limit   time.Duration // Limit as it last was
}

// Verdict of a look.
type Verdict string

// The verdicts.
const (
	Wait   Verdict = "wait"
	Go     Verdict = "go"
	GiveUp Verdict = "give_up" // the budget cannot be met
)

// hardlyShorter is a gain that is not worth another round.
const hardlyShorter = 25 * time.Millisecond

// staleRounds, or turns, without gain end the wait once the budget is met.
const staleRounds = 2

// barely is for how long a copy has come no nearer to its end, beside what the last round that did was foreseen to
// take, that barely does.
const barely = 5 * time.Second

// gainLimit is for how long a copy may come no nearer to its end, beside what the last round that did was foreseen to
// take.
const gainLimit = 30 * time.Second

// late says whether the copy is given up once it does not fit. It goes on where paths carry less than they were said
// to, and what is left gets less all the same.
func (c *Copying) late(at time.Duration) bool {
	return c.Limit > 0 && at > c.Limit && at-c.gained > gainLimit+c.begun
}

// begin looks whether a round begins, and whether it is shorter than the last that was, in time, or in bytes than
// each, where the paths carry less than before: then the copy comes nearer to its end as it begins, and as ever less
// of it is left. In one that is not, that says nothing: the guest has written as much again by its end.
func (c *Copying) begin(round, left int64, l Look) {
	if round == c.round {
		return
	}
	c.round, c.least = round, 0
	d := l.Downtime(c.RTT)
	c.shorter, c.before = c.before != 0 && d < c.before*9/10, d
	if round > 1 && c.begun != 0 && d >= c.begun*9/10 && left >= c.fewest/10*9 {
		return
	}
	c.least, c.gained = left, l.At
	if round > 1 {
		c.begun, c.fewest = d, min(left, cmp.Or(c.fewest, left))
	}
}

// follow begins anew to look whether the copy comes nearer to its end where its limit became shorter, as the paths may
// carry more now: what is left of this round says so, and what is left as the next begins.
func (c *Copying) follow(round, left int64, at time.Duration) {
	if c.Limit < c.limit {
		c.begun, c.fewest, c.gained = 0, 0, at
		if round == c.round {
			c.least = left
		}
	}
	c.limit = c.Limit
}

// Barely says whether a copy goes on though it came no nearer to its end for long, and fits no budget: chance alone
// ends it now, or its limit. Over a path that got slow a round may be longer than the shortest, and shorter than the
// one before.
func (c *Copying) Barely(at time.Duration) bool {
	return !c.shorter && c.stuck(at)
}

// stuck is Barely, also where this round is shorter than the one before: as they come, one may be, and the next fits.
func (c *Copying) stuck(at time.Duration) bool {
	return c.stale >= staleRounds && !c.Fits() && at-c.gained > barely+c.begun
}

// See takes a look and decides. What remains is exact when a round has just
// begun, so decisions fall there (see Look.Turn): within the budget, and when another
// would not make it much shorter.
func (c *Copying) See(l Look) Verdict {
	left, round := cmp.Or(l.Left, l.Remaining), max(1, cmp.Or(l.Round, l.Turn))
	c.follow(round, left, l.At)
	if round == c.round && left < c.least {
		c.least, c.gained = left, l.At
	}
	unfit, chance := Wait, c.stuck(l.At)
	if c.late(l.At) {
		unfit = GiveUp
	}
	foreseen := l.Goodput > 0 || l.Remaining <= l.tail() // else no downtime can be
	if round == 1 || foreseen {
		c.begin(round, left, l)
	}
	if l.Turn <= 1 || l.Turn == c.turn {
		return unfit
	}
	c.turn = l.Turn
	if !foreseen {
		return unfit
	}
	d := l.Downtime(c.RTT)
	c.last = d
	if c.best == 0 || d < c.best*9/10 {
		c.stale = 0
	} else {
		c.stale++
	}
	if c.best == 0 || d < c.best {
		c.best, c.work = d, l.Work
	}
	switch {
	case d > c.Budget:
		return unfit
	case l.gain(c.RTT) <= hardlyShorter, c.stale >= staleRounds, chance, unfit == GiveUp:
		return Go
	}
	return Wait
}

// Gains says whether the pause that is foreseen still gets shorter from turn to turn: copying on may come to its end.
func (c *Copying) Gains() bool { return c.stale < staleRounds }

// Fits says whether what was left at the beginning of the last turn fits the budget.
func (c *Copying) Fits() bool { return c.last != 0 && c.last <= c.Budget }

// Best is the shortest downtime that was foreseen, and how much of it the hosts' processors were to take for what was
// left (0: what that took on the way counts).
func (c *Copying) Best() (pause, work time.Duration) { return c.best, c.work }
