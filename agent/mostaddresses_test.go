package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
)

// TestMostAddresses: a guest keeps what something needs of its old addresses beside its next ones, and moves as long as
// what an agent remembers of it then can be read by the next one.
func TestMostAddresses(t *testing.T) {
	d := config.Description{Name: "web", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}
	addresses := func(format string, n int) (out []migration.Address) {
		for i := range n {
			out = append(out, migration.Address{Prefix: netip.MustParsePrefix(fmt.Sprintf(format, i+1)), Home: "rome"})
		}
		return out
	}
	for held, moves := range map[int]bool{1: true, migration.MostAddresses - 2: true, migration.MostAddresses - 1: false, migration.MostAddresses: false} {
		plan := migration.Plan{Guest: d.Name, Network: "mptcp", Held: addresses("10.1.1.%d/24", held), Next: addresses("10.2.1.%d/24", 2)}
		err := checkPlan(plan, d)
		has := care.Held{Description: d, Dir: "/run/guests/web-2", Addresses: slices.Concat(plan.Next, plan.Held)}
		if read := has.Check(); (err == nil) != moves || err == nil && read != nil {
			t.Errorf("with %d addresses: %v; what is remembered then: %v", held, err, read)
		}
		plan.Network, plan.Next = "tunnel", plan.Held
		if err := checkPlan(plan, d); err != nil {
			t.Errorf("with %d addresses, which it keeps: %v", held, err)
		}
	}
	if err := checkPlan(migration.Plan{Guest: d.Name, Paths: make([][2]netip.Addr, migration.MostAddresses+1)}, d); err == nil {
		t.Error("a plan of more paths was taken")
	}
}
