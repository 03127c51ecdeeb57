package agent

import (
	"net/netip"
	"testing"

	"godwit/migration"
)

// TestAnswersFor: a visitor is answered for its old router, unless it has to reach one of the same
// address here.
func TestAnswersFor(t *testing.T) {
	local, far := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fd00:1:1::1")
	a := &Agent{config: &Config{Network: Network{Gateway4: netip.MustParseAddr("10.2.1.1"), Gateway6: local}}}
	for _, c := range []struct {
		name, network string
		old, want     netip.Addr
	}{
		{"another router", "mptcp", far, far},
		{"one of the same address", "mptcp", local, netip.Addr{}},
		{"of the same address, and the guest keeps its own", "tunnel", local, local},
		{"none", "mptcp", netip.Addr{}, netip.Addr{}},
	} {
		if got := a.answersFor(migration.Plan{Network: c.network}, c.old); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
