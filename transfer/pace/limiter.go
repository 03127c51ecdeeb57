// Package pace limits bandwidth.
package pace

import (
	"sync"
	"time"
)

// Limiter divides a bandwidth between its Shares. Its zero value limits nothing.
type Limiter struct {
	mu      sync.Mutex
	rate    float64 // bytes per second; 0: no limit
	credit  float64 // bytes that may be sent now; negative after a larger piece
	at      time.Time
	changed chan struct{} // closed when the rate changes, or who is next
	waiting []*Share
	clock   float64 // where the last piece began on its share's own count; see Share
}

const (
	// burst is the time whose bytes may be sent at once after a pause.
	burst = 10 * time.Millisecond
	// longest is the time that a piece should take, so that many streams are soon served, and leastPiece what it has at
	// least, bytes: with 8 kbit/s eight streams are served each second, so that none is taken to be dead
	// (paths.Silence).
	longest    = 50 * time.Millisecond
	leastPiece = 128
)

// Set changes the rate; those who wait are reckoned anew. What was taken at a higher rate delays the next piece for as
// long as it would have by that: by a rate of a thousandth the streams would be silent for seconds.
func (l *Limiter) Set(bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill(time.Now())
	rate := float64(max(bytesPerSecond, 0))
	switch l.credit = min(l.credit, 0); {
	case rate == 0:
		l.credit = 0
	case rate < l.rate:
		l.credit *= rate / l.rate
	}
	l.rate = rate
	l.wake()
}

// wake has those who wait look again; under mu.
func (l *Limiter) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Share makes one more share.
func (l *Limiter) Share() *Share { return &Share{of: l, turn: make(chan struct{}, 1)} }

func (l *Limiter) refill(now time.Time) {
	if l.rate > 0 {
		l.credit = min(l.credit+l.rate*now.Sub(l.at).Seconds(), l.rate*burst.Seconds())
	}
	l.at = now
}

// try takes for s a piece of most bytes if there is any credit and no other share is before it, and says how many bytes
// that are; else 0, and how long until there is. A piece may be larger than the credit: the debt delays the next one.
func (l *Limiter) try(s *Share, most int) (n int, wait time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return most, 0, nil
	}
	l.refill(time.Now())
	wait = longest // who is before it wakes it
	if l.first() == s {
		if l.credit >= 0 {
			n = min(most, max(leastPiece, int(l.rate*longest.Seconds())))
			l.credit -= float64(n)
			l.clock, s.end = s.begin, s.begin+float64(n)
			return n, 0, nil
		}
		wait = max(time.Duration(-l.credit/l.rate*float64(time.Second)), time.Microsecond)
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return 0, wait, l.changed
}

// first is the share that is next; under mu.
func (l *Limiter) first() (next *Share) {
	for _, s := range l.waiting {
		if next == nil || s.begin < next.begin {
			next = s
		}
	}
	return next
}
