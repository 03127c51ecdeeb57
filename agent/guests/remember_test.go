package guests

import (
	"net/netip"
	"slices"
	"testing"

	"godwit/agent/care"
	"godwit/agent/record"
	"godwit/migration"
)

// TestAddressesOfOthersStay: addresses that a guest gives up, as a lease ends, are still those of the plan and the
// report of the migration that brought it with them, which could not be read again else.
func TestAddressesOfOthersStay(t *testing.T) {
	home, led := netip.MustParsePrefix("10.1.1.10/24"), netip.MustParsePrefix("10.2.1.10/24")
	plan := migration.Plan{Held: []migration.Address{{Prefix: led}, {Prefix: home}}}
	g := New(care.Held{Addresses: plan.Held}, nil)
	rep := record.Report{ID: "m-00000001", Old: plan.Held}
	seen := g.Held().Addresses
	g.Remember(func(h *care.Held) {
		h.Addresses = slices.DeleteFunc(h.Addresses, func(a migration.Address) bool { return a.Prefix == led })
	})
	if now := g.Held().Addresses; len(now) != 1 || now[0].Prefix != home {
		t.Errorf("the guest has %v", now)
	}
	if err := rep.Check(); err != nil {
		t.Errorf("the report: %v", err)
	}
	if seen[0].Prefix != led || seen[1].Prefix != home {
		t.Errorf("who had asked before has %v", seen)
	}
}
