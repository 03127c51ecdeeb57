// Package pace limits bandwidth.
package pace

import (
	"context"
	"sync"
	"time"
)

// Limiter shares a bandwidth between streams. Its zero value limits nothing.
type Limiter struct {
	mu      sync.Mutex
	rate    float64 // bytes per second; 0: no limit
	credit  float64 // bytes that may be sent now; negative after a larger piece
	at      time.Time
	changed chan struct{} // closed when the rate changes
	turn    chan struct{} // has room for who is next: streams take in turn, or one could get nothing for long
}

const (
	// burst is the time whose bytes may be sent at once after a pause.
	burst = 10 * time.Millisecond
	// longest is the time that a piece should take, so that many streams are soon served, and leastPiece what it has at least, bytes.
	longest    = 50 * time.Millisecond
	leastPiece = 1 << 10
)

// Piece is how many bytes, of most, should be taken at once.
func (l *Limiter) Piece(most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return most
	}
	return min(most, max(leastPiece, int(l.rate*longest.Seconds())))
}

// Set changes the rate; those who wait are reckoned anew.
func (l *Limiter) Set(bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill(time.Now())
	l.rate = float64(max(bytesPerSecond, 0))
	l.credit = min(l.credit, 0)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Rate is the limit, bytes per second; 0: none.
func (l *Limiter) Rate() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.rate)
}

func (l *Limiter) refill(now time.Time) {
	if l.rate > 0 {
		l.credit = min(l.credit+l.rate*now.Sub(l.at).Seconds(), l.rate*burst.Seconds())
	}
	l.at = now
}

// line is where streams queue up.
func (l *Limiter) line() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn == nil {
		l.turn = make(chan struct{}, 1)
	}
	return l.turn
}

// Take waits until n bytes may be sent. It returns ctx's error if that ends first.
func (l *Limiter) Take(ctx context.Context, n int) error {
	select {
	case l.line() <- struct{}{}: // who waits longest gets it next
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		wait, changed := l.try(n)
		if wait == 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// try takes n bytes if there is any credit, else says how long until there is. A piece may
// be larger than the credit: the debt delays the next one.
func (l *Limiter) try(n int) (time.Duration, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return 0, nil
	}
	l.refill(time.Now())
	if l.credit >= 0 {
		l.credit -= float64(n)
		return 0, nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	wait := time.Duration(-l.credit / l.rate * float64(time.Second))
	return max(wait, time.Microsecond), l.changed
}
