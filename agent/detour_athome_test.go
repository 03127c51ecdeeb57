package agent

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate"
)

// TestHomeOutlivesTheLease: of a guest that came home with an address of elsewhere, the lease ends that one; the one that it has at
// home stays for as long as something uses it.
func TestHomeOutlivesTheLease(t *testing.T) {
	home, led := netip.MustParseAddr("10.1.1.20"), netip.MustParseAddr("10.9.1.20")
	for name, uses := range map[string][]netip.Addr{"used": {home, led}, "used at home alone": {home}, "not used": nil, "used elsewhere alone": {led}} {
		a, g, d := leasing(t)
		f := forgetful{silent: new(bool), dropped: new([]netip.Addr), uses: uses}
		g.SpeakBy(f)
		becomes(g, care.Held{
			Description: config.Description{Name: g.Name(), Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Dir: a.guestDir(g.Name(), "2"),
			Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.21/24"), Home: "rome"}, {Prefix: netip.PrefixFrom(home, 24), Home: "rome"}, {Prefix: netip.PrefixFrom(led, 24), Home: "paris"}},
		})
		d.Until = time.Now().Add(-time.Second)
		d.Visiting = []netstate.Visiting{{Addr: home}, {Addr: led, Tunnel: d.Tunnel.Name}}
		a.config.Network.Bridge = "no-such-bridge" // the kernel's part is told by its error
		place(a, d)
		err := a.lookAfter(t.Context(), *d)
		stays := slices.Contains(uses, home)
		if dropped := *f.dropped; slices.Contains(dropped, home) == stays || !slices.Contains(dropped, led) {
			t.Errorf("%s: the guest gave up %v (%v)", name, dropped, err)
		}
		var left []netip.Addr
		for _, d := range a.detours.List(g.Name()) {
			left = append(left, d.Addresses()...)
		}
		if want := map[bool][]netip.Addr{true: {home}}[stays]; !slices.Equal(left, want) {
			t.Errorf("%s: %v leads here, not %v (%v)", name, left, want, err)
		}
		if got := len(g.Held().Addresses); got != map[bool]int{true: 2, false: 1}[stays] {
			t.Errorf("%s: the guest has %v", name, g.Held().Addresses)
		}
	}
}
