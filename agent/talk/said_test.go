package talk

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/migration"
)

// TestSaidIsCutDown: what a destination tells of a guest that runs there is kept as far as it can be meant.
func TestSaidIsCutDown(t *testing.T) {
	addr := netip.MustParseAddr("10.1.1.20")
	for lease, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: time.Second, config.MostLease: config.MostLease, -1: config.DefaultLease, config.MostLease + 1: config.DefaultLease,
	} {
		l := LandedAnswer{
			Report: record.Report{Outcome: "eaten", Notes: []string{"a\x1b[2J"}}, Lease: lease,
			Leased: []netip.Addr{{}, addr}, Moved: addressesFrom(addr, 1000),
		}
		l.Sane()
		if l.Lease != want {
			t.Errorf("a lease of %v: %v, want %v", lease, l.Lease, want)
		}
		if !slices.Equal(l.Leased, []netip.Addr{addr}) || !slices.Equal(l.Moved, addressesFrom(addr, 2*migration.MostAddresses)) {
			t.Errorf("leased %v, moved %v", l.Leased, l.Moved)
		}
		if l.Report.Outcome != "" || slices.Contains(l.Report.Notes, "a\x1b[2J") {
			t.Errorf("%q, %q", l.Report.Outcome, l.Report.Notes)
		}
	}
	r := ReleaseAnswer{Vanished: "no\nbody", Problem: &migration.Problem{Code: migration.CodePeer, Text: "a\nb"}}
	r.Sane()
	if r.Vanished == "no\nbody" || r.Problem.Text == "a\nb" {
		t.Errorf("%q, %q", r.Vanished, r.Problem.Text)
	}
	a := Acceptance{Notes: make([]string, 1000)}
	a.Notes[0] = "no\nrouter"
	if a.Sane(); len(a.Notes) != mostNotes || a.Notes[0] != "no router" {
		t.Errorf("%q", a.Notes)
	}
}

// TestLedCheck: what is asked of how a guest is followed is refused where it cannot be meant.
func TestLedCheck(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.40")
	for name, c := range map[string]struct {
		addresses, hops int
		ok              bool
	}{
		"one": {1, 0, true}, "all of a guest": {migration.MostAddresses, MostHops, true}, "none": {0, 1, false},
		"more": {migration.MostAddresses + 1, 1, false}, "further": {1, MostHops + 1, false}, "back": {1, -1, false},
	} {
		if err := (Led{Guest: "web", Addresses: addressesFrom(addr, c.addresses), To: "oslo", Hops: c.hops}).Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
