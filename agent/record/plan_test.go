package record

import (
	"net/netip"
	"slices"
	"testing"

	"godwit/migration"
)

// TestPlanOfAReport: hooks that hear of a migration by its report are told what the guest got: where its handover failed,
// and it kept its address, not the one that was meant.
func TestPlanOfAReport(t *testing.T) {
	old := []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24")}}
	next := []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24")}}
	for network, want := range map[string][]migration.Address{"mptcp": next, "drain": next, "tunnel": old} {
		rep := NewReport(migration.Plan{ID: "m-00000001", Guest: "web", From: "rome", To: "paris", Network: network}, 1)
		rep.Old, rep.Next = old, next
		if p := rep.Plan(); !slices.Equal(migration.Bare(p.Next), migration.Bare(want)) || !slices.Equal(migration.Bare(p.Held), migration.Bare(old)) {
			t.Errorf("%s: from %v to %v; want from %v to %v", network, p.Held, p.Next, old, want)
		}
	}
}
