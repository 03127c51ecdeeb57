package lanes

import (
	"testing"

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
		if got := Pace(peer.Path{Rate: c.rate, Shared: true}, c.channels, c.paths); got != c.want {
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
		if got := Pace(all[0], 1, 1); got != c.want {
			t.Errorf("%+v: %d bytes/s", c, got)
		}
	}
}

// TestPaceMultipath: the kernel paces no subflow, so one connection has what all paths have, less the option that each
// of its packets has, and more where guests' packets go.
func TestPaceMultipath(t *testing.T) {
	own, shared, unknown := peer.Path{Rate: 8_000_000}, peer.Path{Rate: 16_000_000, Shared: true}, peer.Path{}
	const want = 929_005 + 1_764_328
	if got := PaceMultipath([]peer.Path{own, shared}); got != want || got >= Pace(own, 1, 1)+Pace(shared, 1, 1) {
		t.Errorf("two paths: %d bytes/s, want %d", got, want)
	}
	if got := PaceMultipath([]peer.Path{own, unknown}); got != 0 {
		t.Errorf("one of an unknown rate: %d bytes/s", got)
	}
}
