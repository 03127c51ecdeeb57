package policy

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Facts for a prediction.
type Facts struct {
	Memory  int64   // bytes of guest memory
	Content int64   // bytes of it that are not zeros
	Known   int64   // bytes of those that the destination has already
	Ratio   float64 // bytes on the wire for a byte of the rest; 0: one
	Again   float64 // bytes on the wire for a byte that is written again; 0: Ratio
	Zero    float64 // bytes on the wire for a page of zeros
	Disks   DiskFacts

	Rate      int64 // bit/s of all paths together; 0: unknown
	Paths     int64 // the same without the migration's own limit; 0: as Rate
	Beside    []Beside
	RTT       time.Duration
	LastRTT   time.Duration // of the way that memory's last bytes take; 0: RTT
	Lost      float64       // the share of packets that the paths lose
	Speed     int64         // bytes of guest memory per second that both ends handle; 0: as many as the paths carry
	DirtyRate int64         // bytes per second; 0: unknown
	Written   int64         // bytes of memory that the guest writes to again and again; 0: all of it
	Budget    time.Duration
	Queue     time.Duration // what waits in a hypervisor's own connections, while there is always something to send
	Tail      int64         // bytes of device state, as they are sent; 0: as QEMU writes it

	MostThrottle int // how far the guest may be throttled, percent

	Stopped bool // the guest stands still from the first byte of its memory on (stop-and-copy)
	Follows bool // the rest of memory may follow the guest (hybrid)
	Early   bool // it does so as soon as all was read once (post-copy)

	Spent time.Duration // since the migration was asked for
}

// Forecast is what a migration will cost.
type Forecast struct {
	Migration time.Duration
	Downtime  time.Duration
	WireBytes int64
	Throttled int // how far the guest will have to be, percent; 0: not at all
	// Settles is the pause that what is left comes to, where rounds get no shorter before that meets the budget: it
	// will be met by chance alone, or not at all; 0: they do, or another means is at hand.
	Settles time.Duration
	Disks   Seeded
}

// assumedRate stands in where nothing is known of a link, bit/s.
const assumedRate = 1_000_000_000

const (
	// carriedShare is what a path carries of its rate, headers included: the rest is its guests' (agent, sharedShare).
	carriedShare = 0.95
	// framing is what a byte sent makes on the wire, with the headers of IP, TCP and TLS: 1448 bytes in 1500, and some
	// acknowledgements and keepalives.
	framing = 1.04
	// knownPage is what a page costs that the destination has already, bytes: its place and its SHA-256.
	knownPage = 40
)

// What a migration takes beside what is sent, as measured in the lab, and in round trips: a QEMU is started and both ends
// of a tunnel stand; a copy begins, and its last rounds are looked at; packets are led away.
const (
	preparing, preparingTrips = 250 * time.Millisecond, 4
	beginning, beginningTrips = 400 * time.Millisecond, 2
	switching, switchingTrips = 60 * time.Millisecond, 2
	// stopping is what a stop takes beside load and the way: QEMU looks for the last time at which pages are dirty, and
	// writes its devices' state.
	stopping = 15 * time.Millisecond
	// between is from the last round to the stop: the guest writes on.
	between = 150 * time.Millisecond
)

// lastWrites is for how long a guest writes what follows it: the rest of that it writes again.
const lastWrites = time.Second

// Predict computes the series of pre-copy rounds (Clark 2005; He 2019, eq. 1): each round sends what the one before let the
// guest write. Where it writes the same again, a longer round lets it write less than in proportion.
func Predict(f Facts) Forecast {
	if f.Stopped { // nothing is written meanwhile
		f.DirtyRate = 0
	}
	f.Ratio = cmp.Or(f.Ratio, 1)
	f.Again = cmp.Or(f.Again, f.Ratio)
	f.LastRTT = cmp.Or(f.LastRTT, f.RTT)
	carried := float64(cmp.Or(f.Rate, assumedRate)) / 8 * carriedShare
	first := f.first()
	alone := max(first/carried, f.handling(float64(f.Content))) // seconds
	handles := carried / (f.Again * framing)                    // of what is written again, bytes per second
	if f.Speed > 0 {
		handles = min(handles, float64(f.Speed))
	}
	if f.Beside = slices.Clone(f.Beside); f.Stopped { // others give way to a guest that stands still
		f.Beside = nil
	}
	most := max(carried, float64(f.Paths)/8*carriedShare)
	disksTake := float64(f.Disks.Packed) * framing / most
	pass := f.amid(first+disksTake*most, most, alone+disksTake) - disksTake
	dirty, throttled := f.writing(first, carried, handles)
	took, again, follows := f.copying(alone, pass, dirty, handles, most)
	look := f.pause(first, dirty, handles, follows)
	look.Goodput = int64(carried)
	disks := f.Disks.Seeding(carried)
	if disks.Waits { // one write is under way whenever the guest is stopped, which is waited for
		look.Disks = f.Disks.Loses.RTT / 2
	}
	if f.Stopped {
		look.Remaining, look.Work = int64(first), seconds(pass)
	}
	lost := Loses{f.Lost, f.LastRTT}.Arrives(float64(look.Remaining+look.tail())) - f.LastRTT // each time a whole round trip
	barely := throttled == 0 && !f.Follows && share(dirty, handles) >= converging
	downtime, settles := f.stands(stopping+look.Downtime(f.LastRTT)+lost, barely, follows)
	downtime = max(downtime, Least(f.LastRTT, f.Tail, look.Goodput)) // no budget makes the way shorter
	beside := preparing + switching + (preparingTrips+switchingTrips)*f.RTT
	if !f.Stopped {
		beside += beginning + beginningTrips*f.RTT + startup(first, carried, f.RTT) + seconds(took)
	}
	return Forecast{
		Migration: f.Spent + beside + disks.Took + downtime,
		Downtime:  downtime,
		WireBytes: int64((first + again*f.Again*framing + float64(disks.Bytes+look.tail())) / (1 - min(f.Lost, mostLost))),
		Throttled: throttled,
		Settles:   settles,
		Disks:     disks,
	}
}

// stands is how long a guest is foreseen to stand still whose pause would be that of what is left, and
// Forecast.Settles, where barely says that rounds get no shorter. Where the rest of memory follows it, or it stands
// still all along, no budget keeps that short. What QEMU reads as it loads devices is there by then (loads in
// transfer/proxy).
func (f Facts) stands(pause time.Duration, barely, follows bool) (stands, settles time.Duration) {
	switch {
	case follows || f.Stopped:
		return pause, 0
	case pause > f.Budget && barely:
		settles = pause
	}
	return min(pause, max(f.Budget, pause/2)), settles
}

// mostLost bounds how often what is lost is foreseen to be sent again.
const mostLost = 0.9

// mostAgain is the share of a round that is sent again at most, as foreseen: a round that never ends is not.
const mostAgain = 0.95

// copying is how long memory is copied, of which one pass takes so long, and alone so long, until the guest may be
// stopped (seconds), how many bytes of it go once more, and whether the rest follows the guest. most is what the
// paths carry.
func (f Facts) copying(alone, pass, dirty, handles, most float64) (took, again float64, follows bool) {
	const short = 1e-5 // no round matters that is shorter
	took = pass
	stale := 0
	for round, lasts := alone, pass; round > short && !(stale >= staleRounds && lasts < f.Budget.Seconds()); {
		written := min(f.written(dirty, lasts), mostAgain*handles*round)
		again += written
		if f.Written > 0 && written/handles > 0.9*round { // see Copying
			stale++
		}
		round = written / handles
		lasts = f.amid(written*f.Again*framing, most, round)
		took += lasts
	}
	follows = f.Early || f.Follows && took > FollowRounds*pass
	if !follows {
		return took, again, false
	}
	took, again = FollowRounds*pass, (FollowRounds-1)*alone*handles
	if f.Early { // all is read, however fast it is sent, and what is written meanwhile replaces what waits
		took, again = pass, 0
		if f.Speed > 0 {
			took = f.handling(float64(f.Content))
		}
	}
	return took, again + min(f.written(float64(f.DirtyRate), lastWrites.Seconds()), float64(f.Content)), true
}

// written is how many bytes of memory are written to in so many seconds: of Written any page is as likely as another.
func (f Facts) written(dirty, took float64) float64 {
	if f.Written == 0 {
		return dirty * took
	}
	all := float64(f.Written)
	return all * -math.Expm1(-dirty*took/all)
}

// settled is how many bytes of Written are left once rounds over those gain nothing more: each lets the guest write
// what it took to send the one before, and much of that is written twice.
func (f Facts) settled(dirty, handles float64) float64 {
	left := float64(f.Written)
	for range 30 {
		next := f.written(dirty, left/handles)
		if next > 0.9*left { // see Copying
			break
		}
		left = next
	}
	return left
}

// share is that of a round which is sent again, as foreseen, where all that is written counts.
func share(dirty, handles float64) float64 { return min(dirty/handles, mostAgain) }

// pause is what will be left when the guest is stopped.
func (f Facts) pause(first, dirty, handles float64, follows bool) Look {
	left := f.written(min(dirty, mostAgain*handles), between.Seconds())
	look := Look{Remaining: int64(left * f.Again * framing), Tail: f.Tail, Work: seconds(f.handling(left))}
	if part := share(dirty, handles); part >= converging && !follows {
		most := part * part * first
		if f.Written > 0 {
			most = min(most, f.settled(dirty, handles)*f.Again*framing)
		}
		look.Remaining = max(look.Remaining, int64(most)) + int64(f.Queue.Seconds()*handles*f.Again*framing)
	}
	return look
}

// first is what the first pass over memory sends, bytes on the wire.
func (f Facts) first() float64 {
	known := min(f.Known, f.Content)
	zeros := f.Memory - min(f.Content, f.Memory)
	return framing * (float64(f.Content-known)*f.Ratio + float64(known)/page*knownPage + float64(zeros)/page*f.Zero)
}

const page = 4096

// handling is how long both ends need at least for so many bytes of guest memory, seconds.
func (f Facts) handling(bytes float64) float64 {
	if f.Speed == 0 {
		return 0
	}
	return bytes / float64(f.Speed)
}

// writing is what the guest writes, bytes per second, and how far it will be throttled, percent: from then on each round
// is that share of the one before. One of which what is left meets the budget as it is will not be.
func (f Facts) writing(first, carried, handles float64) (dirty float64, throttled int) {
	dirty = float64(f.DirtyRate)
	if f.Follows || f.Early {
		return dirty, 0
	}
	if look := f.pause(first, dirty, handles, false); f.MostThrottle > 0 {
		if look.Goodput = int64(carried); look.Downtime(f.LastRTT) <= f.Budget {
			return dirty, 0
		}
	}
	if throttled = (Throttling{Most: f.MostThrottle}).Foresee(f.DirtyRate, int64(handles)); throttled > 0 {
		dirty = min(dirty, max(easeTarget*handles, dirty*float64(100-throttled)/100))
	}
	return dirty, throttled
}

// longest is what is foreseen at most: some of them are added up, and a time.Duration has room for 292 years.
const longest = 50 * 365 * 24 * time.Hour

func seconds(s float64) time.Duration {
	return time.Duration(min(s, longest.Seconds()) * float64(time.Second))
}
