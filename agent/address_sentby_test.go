package agent

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"

	"godwit/migration"
	"godwit/vm/guest"
)

// TestKeptByItsOldRouter: what a guest keeps of its old addresses leaves by the router of the next one, and where the
// site gives it none of that family by the old one's, for which the host answers.
func TestKeptByItsOldRouter(t *testing.T) {
	address := func(prefix, gateway string) migration.Address {
		a := migration.Address{Prefix: netip.MustParsePrefix(prefix)}
		if gateway != "" {
			a.Gateway = netip.MustParseAddr(gateway)
		}
		return a
	}
	old := []migration.Address{address("10.1.1.10/24", "10.1.1.1"), address("fd00:1:1::10/64", "fd00:1:1::1"), address("fd00:3:1::10/64", "fd00:3:1::1")}
	next4, next6 := address("10.2.1.10/24", "10.2.1.1"), address("fd00:2:1::10/64", "fe80::1")
	for name, c := range map[string]struct {
		next   []migration.Address
		v4, v6 netip.Addr
	}{
		"a site of both families":       {[]migration.Address{next4, next6}, netip.Addr{}, netip.Addr{}},
		"one of IPv4 alone":             {[]migration.Address{next4}, netip.Addr{}, old[1].Gateway},
		"one of IPv6 alone":             {[]migration.Address{next6}, old[0].Gateway, netip.Addr{}},
		"one of IPv4, without a router": {[]migration.Address{address("10.2.1.10/24", "")}, old[0].Gateway, old[1].Gateway},
	} {
		var retired []guest.Retire
		m := landing(t, talking(t, map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "await_join": answers(guest.Joins{}, nil),
			"make_main": answers(struct{}{}, nil), "users": answers(guest.Users{TCP: 1}, nil), "configure": answers(guest.Configured{}, nil),
			"retire": func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
				var p guest.Retire
				err := json.Unmarshal(raw, &p)
				retired = append(retired, p)
				return struct{}{}, err
			},
		}))
		m.plan.Held, m.plan.Next, m.work.joins = old, c.next, &guest.Joins{}
		if _, err := m.retire(t.Context(), false); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range retired {
			if !p.Keep || p.GatewayV4 != old[0].Gateway || p.KeepGatewayV4 != c.v4 || p.KeepGatewayV6 != c.v6 {
				t.Errorf("%s: %+v, want %s and %s", name, p, c.v4, c.v6)
			}
		}
		if len(retired) != 2 {
			t.Errorf("%s: retired %d times", name, len(retired))
		}
	}
}
