package paths

import (
	"testing"
	"time"
)

// TestNewLaneHasNoLag: what a new lane's kernel has brought was not waited for since the beginning of time.
func TestNewLaneHasNoLag(t *testing.T) {
	now := time.Now()
	l := &lane{wrote: 100, kernel: kernelAsked(func() (onWay, bool) { return onWay{}, true }, now)} // the greeting has been said
	for range 30 {
		now = now.Add(3 * time.Millisecond)
		l.askedKernel(now)
		l.wrote += 4096
	}
	if lag := l.kernel.lag; lag > 3*time.Millisecond {
		t.Errorf("it is taken to lag by %v", lag)
	}
}

// TestLagIsBounded: after a path that brought nothing for long, patience is not kept long for all the growths that follow.
func TestLagIsBounded(t *testing.T) {
	now := time.Now()
	l := &lane{wrote: 100, kernel: kernelAsked(func() (onWay, bool) { return onWay{}, true }, now)}
	l.askedKernel(now.Add(time.Hour))
	if lag := l.kernel.lag; lag != stuckMost {
		t.Errorf("it is taken to lag by %v", lag)
	}
}

// TestLagIsOfThePath: while a write lasts, on a slow path, none of its bytes counts as written; its path brings them
// all the same.
func TestLagIsOfThePath(t *testing.T) {
	now := time.Now()
	var w onWay
	l := &lane{estimate: estimate{rtt: 20 * time.Millisecond}, wrote: 100, kernel: kernelAsked(func() (onWay, bool) { return w, true }, now)}
	for range 100 { // a write of 32 KiB, of which 4 KiB go each 16 ms, in whose place the kernel takes others
		w.queued = 32 << 10
		for range 8 {
			now = now.Add(16 * time.Millisecond)
			w.acked += 4 << 10
			l.askedKernel(now)
		}
		l.wrote += 32 << 10
	}
	if lag := l.kernel.lag; lag > 0 {
		t.Errorf("it is taken to lag by %v", lag)
	}
	since := now
	for range 20 {
		now = now.Add(16 * time.Millisecond)
		l.askedKernel(now)
	}
	if still := now.Sub(l.kernel.moved); still < now.Sub(since)-16*time.Millisecond {
		t.Errorf("it has brought nothing for %v, and was taken to for %v", now.Sub(since), still)
	}
}
