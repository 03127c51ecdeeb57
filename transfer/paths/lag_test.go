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
		l.sees(now)
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
	l.sees(now.Add(time.Hour))
	if lag := l.kernel.lag; lag != stuckMost {
		t.Errorf("it is taken to lag by %v", lag)
	}
}
