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
		return g.See(start.Add(time.Duration(window)*goodputWindow), total)
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
