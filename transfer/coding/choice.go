package coding

import "time"

const (
	// lookEvery is between two looks at where the time went.
	lookEvery = 200 * time.Millisecond
	// busy is the share of the time that coding and writing take from which on the stream is held up by them; else it
	// is by who writes to it, and no level is any better, unless that waits while much is coded.
	busy = 0.7
	// heldUp is the share that writing takes from which on a higher level is tried, if it is expected to work no more than
	// mostWork of the time: harder is how many times the work of a level the next one is.
	heldUp, harder, mostWork = 0.5, 2.5, 0.5
	// muchWork is the share that coding takes from which on a lower level is tried.
	muchWork = 0.3
	// better is by how much a level that works more has to be.
	better = 1.02
	// fresh is for how many looks a level's speed is believed, and it is not tried again.
	fresh = 50
)

// choice finds the level by which most of a stream gets through: levels are tried next to each other. Data differ
// as well, but neither choice is bad then.
type choice struct {
	level           Level
	looked          time.Time // zero: never
	plain           int       // bytes that came since, and the time that they took
	coding, writing time.Duration

	looks int
	seen  [levels]struct {
		speed float64 // plain bytes per second that it coded and wrote
		look  int     // when; 0: never
	}
}

// see takes note of n bytes whose frame was begun, coded and written at these times.
func (c *choice) see(n int, begun, coded, written time.Time) {
	if c.looked.IsZero() {
		c.looked = begun
	}
	c.plain += n
	c.coding, c.writing = c.coding+coded.Sub(begun), c.writing+written.Sub(coded)
	if all := written.Sub(c.looked); all >= lookEvery {
		coding, writing := float64(c.coding)/float64(all), float64(c.writing)/float64(all)
		if coding+writing > busy || coding > muchWork || c.level == Off && writing > muchWork { // who went down to Off may have to go up again
			c.look(coding, writing)
		}
		c.plain, c.coding, c.writing, c.looked = 0, 0, 0, written
	}
}

// look chooses, where coding and writing took these shares of the time.
func (c *choice) look(coding, writing float64) {
	c.looks++
	here := &c.seen[c.level]
	here.speed, here.look = float64(c.plain)/(c.coding+c.writing).Seconds(), c.looks
	if lower := c.level - 1; c.level > Off && (c.known(lower) && c.seen[lower].speed*better > here.speed || !c.known(lower) && coding > muchWork) {
		c.level = lower
		return
	}
	if upper := c.level + 1; int(upper) < levels && (c.known(upper) && c.seen[upper].speed > here.speed*better || !c.known(upper) && writing > heldUp && coding*harder < mostWork) {
		c.level = upper
	}
}

func (c *choice) known(level Level) bool {
	return c.seen[level].look > 0 && c.looks-c.seen[level].look < fresh
}
