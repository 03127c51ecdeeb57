package agent

import (
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/peer"
)

func TestPace(t *testing.T) {
	for _, c := range []struct {
		rate            int64
		channels, paths int
		want            int64
	}{
		{0, 4, 2, 0},               // an unknown rate is not limited
		{8_000_000, 0, 1, 930_000}, // one stream, no channels
		{8_000_000, 1, 1, 930_000},
		{8_000_000, 4, 1, 232_500},
		{8_000_000, 4, 2, 465_000},
		{8_000_000, 3, 2, 465_000}, // the path that carries two decides
		{8_000_000, 2, 3, 930_000},
	} {
		if got := paceOf(peer.Path{Rate: c.rate, Shared: true}, c.channels, c.paths); got != c.want {
			t.Errorf("%+v: %d bytes/s", c, got)
		}
	}
	// Only what carries no guests' packets at either end is the migration's alone.
	for _, c := range []struct {
		here, there string
		want        int64
	}{{"migration", "migration", 950_000}, {"both", "migration", 930_000}, {"migration", "both", 930_000}, {"both", "both", 930_000}} {
		here, there := config.Uplink{Carries: c.here, Rate: 8_000_000}, config.Uplink{Carries: c.there, Rate: 9_000_000}
		all := (&config.Config{Uplinks: []config.Uplink{here}}).Paths(config.Neighbour{Uplinks: []config.Uplink{there}})
		if got := paceOf(all[0], 1, 1); got != c.want {
			t.Errorf("%+v: %d bytes/s", c, got)
		}
	}
}

func TestGoodput(t *testing.T) {
	start := time.Unix(0, 0)
	var g goodput
	total := int64(0)
	see := func(window int, bytes int64) int64 {
		total += bytes
		return g.see(start.Add(time.Duration(window)*goodputWindow), total)
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
