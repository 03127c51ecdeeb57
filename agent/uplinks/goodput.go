package uplinks

import "time"

// Goodput estimates what the paths carry, from a running total. A sender that had something to send all along says
// what they do. Of one that had not, little says nothing: QEMU held with nothing to send is no slow path. As a path
// that got far slower and is well again may find nobody who fills it, what it was said to carry then is forgotten by
// and by while nobody does: a guest that does not even fill that leaves little, and waits for a minute at the most.
type Goodput struct {
	at     time.Time
	bytes  int64
	waited time.Duration
	unsure bool // it was not known all along how long something waited
	rate   float64
	before float64 // the rate before a full path carried far less than that; 0: none did
}

const (
	// goodputWindow is how long a sample takes, at least: what was sent is there after half a round trip, and told
	// after a whole one.
	goodputWindow = 250 * time.Millisecond
	// goodputFull is the share of a sample in which something waited to be sent, where the path was full.
	goodputFull = 0.9
	// goodputRegain is by what each sample in which it was not brings the rate nearer to the one before: twice in 9 s.
	goodputRegain = 1.02
	// NotKnown is for how long something waited where nobody tells.
	NotKnown = -time.Nanosecond
)

// See takes the total at now, and for how long of the time until now something waited to be sent, on paths whose round
// trip takes so long; it returns bytes per second; 0: not known yet.
func (g *Goodput) See(now time.Time, total int64, waited, trip time.Duration) int64 {
	g.unsure = g.unsure || waited < 0
	switch d := now.Sub(g.at); {
	case g.at.IsZero():
	case d < max(goodputWindow, trip):
		return int64(g.rate)
	default:
		carried := total - g.bytes // nothing at all is a path that was cut, and comes back
		full := carried > 0 && !g.unsure && float64(waited-g.waited) >= goodputFull*float64(d)
		g.learn(float64(carried)/d.Seconds(), full)
	}
	g.at, g.bytes, g.waited, g.unsure = now, total, waited, waited < 0
	return int64(g.rate)
}

// learn takes a sample, bytes per second.
func (g *Goodput) learn(sample float64, full bool) {
	switch {
	case full && sample < g.rate/20:
		g.before = max(g.before, g.rate)
	case full && sample > g.before/10: // it carries more again
		g.before = 0
	}
	switch {
	case !full && sample < g.rate && g.rate < g.before:
		g.rate = min(g.rate*goodputRegain, g.before)
	case sample > g.rate/2, g.rate == 0, full && g.before > 0:
		g.rate += (sample - g.rate) * 0.5
	case sample > g.rate/20: // a slower path counts, an idle one does not
		g.rate += (sample - g.rate) * 0.1
	}
}
