package proxy

import (
	"runtime"
	"testing"
	"time"
)

// TestSpare: what nobody used lately is what idle processors add up to, looked at now and then.
func TestSpare(t *testing.T) {
	idle, known, looks := time.Hour, true, 0
	s := spare{read: func() (time.Duration, bool) { looks++; return idle, known }}
	at := time.Unix(1000, 0)
	if got := s.now(at); got != 0 {
		t.Errorf("at first %v", got)
	}
	for range 10 { // 1.5 of some processors
		at, idle = at.Add(100*time.Millisecond), idle+150*time.Millisecond
		s.now(at)
	}
	if got := s.now(at); got < 1.24 || got > 1.26 {
		t.Errorf("%v processors, want 1.5 but for the reserve", got)
	}
	if looks > 5 {
		t.Errorf("looked %d times in a second", looks)
	}
	s.now(at.Add(time.Second))
	at = at.Add(2 * time.Second) // all busy
	if got := s.now(at); got != 0 {
		t.Errorf("all busy: %v", got)
	}
	known = false
	at, idle = at.Add(time.Second), 0
	if got := s.now(at); got != 0 {
		t.Errorf("not known: %v", got)
	}
}

// TestIdleTime: the kernel tells it, and it does not grow faster than processors can be idle.
func TestIdleTime(t *testing.T) {
	begun := time.Now()
	before, ok := idleTime()
	if !ok || before <= 0 {
		t.Fatalf("%v, %v", before, ok)
	}
	time.Sleep(50 * time.Millisecond)
	after, ok := idleTime()
	most := time.Duration(runtime.NumCPU()) * (time.Since(begun) + 2*tick)
	if !ok || after < before || after-before > most {
		t.Errorf("from %v to %v in %v", before, after, time.Since(begun))
	}
}
