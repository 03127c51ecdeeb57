package agent

import (
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/clock"
)

func TestClockSteps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var c clockSteps
	for i, look := range []struct {
		wall, since, want time.Duration
	}{
		{0, 5 * time.Second, 0}, // the first look knows of none
		{time.Second, 6 * time.Second, 0},
		{time.Hour, 7 * time.Second, time.Hour - 2*time.Second},
		{time.Hour + time.Second, 8 * time.Second, 0},
		{2 * time.Second, 9 * time.Second, -time.Hour},
		{3*time.Second + 500*time.Millisecond, 10 * time.Second, 0}, // slewed
		{time.Hour, time.Hour + 6500*time.Millisecond, 0},           // asleep for an hour: both went on
	} {
		if got := c.see(start.Add(look.wall), look.since); got != look.want {
			t.Errorf("look %d: stepped by %v, want %v", i, got, look.want)
		}
	}
}

func TestLeasesMoveWithTheClock(t *testing.T) {
	now := clock.Now()
	const a, b = "m-0000000a", "m-0000000b-rome"
	s := &detours{path: filepath.Join(t.TempDir(), "detours.json"), byID: map[string]*detour{
		a: {ID: a, Guest: "web", Up: now, Until: now.Add(leaseTime)}, b: {ID: b, Guest: "web", Up: now},
	}}
	if err := s.shift(time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := s.byID[a].Until.Sub(now); got != leaseTime+time.Hour {
		t.Errorf("a's lease ends in %v", got)
	}
	if !s.byID[b].Until.IsZero() {
		t.Error("one without an end has got one")
	}
	again, err := loadDetours(s.path, Network{})
	if err != nil || again.byID[a].Until.Sub(now) != leaseTime+time.Hour {
		t.Errorf("on the disk: %v, %v", again, err)
	}
	for _, left := range []time.Duration{0, time.Minute} {
		d := &detour{}
		if d.leaseFor(left); !d.Leased || d.left() > left || left-d.left() > time.Second {
			t.Errorf("leased for %v, %v are left", left, d.left())
		}
	}
}
