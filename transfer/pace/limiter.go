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
}

// burst is the time whose bytes may be sent at once after a pause.
const burst = 10 * time.Millisecond

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

// Take waits until n bytes may be sent. It returns ctx's error if that ends first.
func (l *Limiter) Take(ctx context.Context, n int) error {
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
