package ways

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/migration"
)

const fast1, slow1, fast2, slow2 = "127.0.0.2", "127.0.0.3", "127.0.1.2", "127.0.1.3"

// fastAndSlow are two hosts with a fast and a slow uplink for migrations each.
func fastAndSlow() (*config.Config, config.Neighbour) {
	uplinks := func(fast, slow string) []config.Uplink {
		return []config.Uplink{
			{Name: "guests", Address: netip.MustParseAddr(fast).Prev(), Carries: "guest"},
			{Name: "fast", Address: netip.MustParseAddr(fast), Carries: "migration", Rate: 100e6},
			{Name: "slow", Address: netip.MustParseAddr(slow), Carries: "migration", Rate: 50e6},
		}
	}
	return &config.Config{Uplinks: uplinks(fast1, slow1)}, config.Neighbour{Uplinks: uplinks(fast2, slow2)}
}

// choose is what those that answer carry of the paths that our own data path takes then, bit/s, those paths, and what
// is said of them.
func choose(here *config.Config, there config.Neighbour, trips Trips) (carried int64, names []string, note string) {
	plan := migration.Plan{Transfer: "lanes"}
	chosen := trips.Choose(plan, here.Paths(there), time.Millisecond)
	plan.Paths = chosen.Ends
	paths := Of(plan, here.Paths(there))
	return Rate(trips.Answering(paths)), Names(paths), chosen.Note
}

// TestOf: an uplink that has none of its own opposite carries memory all the same, for each transfer that takes several.
func TestOf(t *testing.T) {
	here := &config.Config{Uplinks: []config.Uplink{
		{Name: "public", Address: netip.MustParseAddr("100.64.0.11"), Carries: "both"}, {Name: "two", Address: netip.MustParseAddr("100.64.1.11"), Carries: "both"},
	}}
	there := config.Neighbour{Uplinks: []config.Uplink{{Name: "public", Address: netip.MustParseAddr("100.65.0.11"), Carries: "both"}}}
	for transfer, want := range map[string]int{"lanes": 2, "mptcp": 2, "qemu-mptcp": 2, "qemu-multifd": 1, "qemu-tcp": 1, "qemu-xbzrle": 1} {
		if paths := Of(migration.Plan{Transfer: transfer}, here.Paths(there)); len(paths) != want {
			t.Errorf("%s takes %v, want %d paths", transfer, paths, want)
		}
	}
}

// TestFastestThatAnswer: of as many pairs that answer those count that carry the most.
func TestFastestThatAnswer(t *testing.T) {
	here, there := fastAndSlow()
	here.Uplinks[2].Rate = 5e6
	at := func(here, there string) [2]netip.Addr {
		return [2]netip.Addr{netip.MustParseAddr(here), netip.MustParseAddr(there)}
	}
	carried, paths, note := choose(here, there, Trips{at(fast1, slow2): 1, at(slow1, slow2): 1}) // the fast one there is down
	if carried < 49e6 {
		t.Errorf("%d bit/s over %q, though fast-slow carries 50000000", carried, paths)
	}
	if note != "memory goes over fast-slow, slow-slow, as nothing is answered over fast-fast" {
		t.Errorf("note: %q", note)
	}
}

// TestSilentOneIsTriedOn: a pair that does not answer is no reason for pairs that carry less, of which all do.
func TestSilentOneIsTriedOn(t *testing.T) {
	here, there := fastAndSlow()
	spare := config.Uplink{Name: "spare", Address: netip.MustParseAddr("127.0.0.4"), Carries: "migration", Rate: 10e6}
	here.Uplinks = slices.Insert(here.Uplinks, 0, spare)
	there.Uplinks[1].Rate, there.Uplinks[2].Rate = 1000e6, 1e6
	trips := Trips{}
	for _, p := range here.Paths(there) {
		if p.Memory && p.Name != "spare-slow" {
			trips[Ends(p)] = 1
		}
	}
	carried, paths, _ := choose(here, there, trips)
	if carried != 150e6 || !slices.Equal(paths, []string{"fast-fast", "slow-fast", "spare-slow"}) {
		t.Errorf("%d bit/s over %q", carried, paths)
	}
}

// TestEachThatAnswersIsUsed: where an uplink here is down beside a fast one, that fills each of the other host's, and
// the one that is down is tried on.
func TestEachThatAnswersIsUsed(t *testing.T) {
	here, there := fastAndSlow()
	here.Uplinks[1].Rate, here.Uplinks[2].Rate = 1000e6, 200e6
	at := func(there string) [2]netip.Addr {
		return [2]netip.Addr{netip.MustParseAddr(fast1), netip.MustParseAddr(there)}
	}
	carried, paths, note := choose(here, there, Trips{at(fast2): 1, at(slow2): 1})
	if carried != 150e6 || !slices.Equal(paths, []string{"fast-fast", "fast-slow", "slow-fast"}) {
		t.Errorf("%d bit/s over %q", carried, paths)
	}
	if note != "memory goes over fast-fast, fast-slow, as nothing is answered over slow-slow" {
		t.Errorf("note: %q", note)
	}
}
