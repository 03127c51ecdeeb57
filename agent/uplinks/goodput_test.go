package uplinks

import (
	"testing"
	"time"
)

func TestGoodput(t *testing.T) {
	start := time.Unix(0, 0)
	var g Goodput
	total := int64(0)
	see := func(window int, bytes int64) int64 {
		total += bytes
		return g.See(start.Add(time.Duration(window)*goodputWindow), total, 0, 0)
	}
	perSecond := int64(goodputWindow) // bytes in a window of 1e9 bytes per second
	if got := see(0, 0); got != 0 {
		t.Fatalf("at the first look: %d", got)
	}
	for window := 1; window <= 8; window++ {
		see(window, perSecond)
	}
	steady := see(9, perSecond)
	if steady < 990_000_000 || steady > 1_000_000_000 {
		t.Fatalf("steady: %d", steady)
	}
	if got := see(10, 0); got != steady {
		t.Errorf("idle: %d, was %d", got, steady)
	}
	if got := see(11, perSecond/10); got >= steady || got < steady*8/10 {
		t.Errorf("a slow window: %d, was %d", got, steady)
	}
}

// TestGoodputWhileBytesWait: a path that got far slower is known by what waits; what is on its way, and what leaves
// within a sample, says nothing.
func TestGoodputWhileBytesWait(t *testing.T) {
	const fast = int64(goodputWindow) // bytes in a window of 1e9 bytes per second
	for name, c := range map[string]struct {
		bytes, waits int64
		every        int64 // so many windows there wait any
		trip         time.Duration
		slower       bool
	}{
		"all along":               {fast / 100, fast / 5, 1, 20 * time.Millisecond, true},
		"in a socket of its trip": {fast / 100, fast * 4 / 5, 1, goodputWindow * 4 / 5, true},
		"now and then":            {fast / 100, fast / 5, 2, 20 * time.Millisecond, false},
		"as much as leaves":       {fast / 100, fast / 100, 1, 0, false},
		"on its way":              {fast / 100, fast / 50, 1, 500 * time.Millisecond, false},
		"in a cut":                {0, fast / 5, 1, 20 * time.Millisecond, false},
	} {
		start, total, got := time.Unix(0, 0), int64(0), int64(0)
		var g Goodput
		for window := int64(0); window <= 50; window++ {
			waits := int64(0)
			if window%c.every == 0 {
				waits = c.waits
			}
			got = g.See(start.Add(time.Duration(window)*goodputWindow), total, waits, c.trip)
			if total += fast; window >= 10 {
				total += c.bytes - fast
			}
		}
		if slower := got < 20_000_000; slower != c.slower || !slower && got < 900_000_000 {
			t.Errorf("%s: %d", name, got)
		}
	}
}
