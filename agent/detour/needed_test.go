package detour

import (
	"net/netip"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/internal/clock"
	"godwit/netstate"
)

// TestSettle: what is leased stays for the lease, and what nobody wrote down as if all were.
func TestSettle(t *testing.T) {
	home, visited := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.9.1.4")
	for name, c := range map[string]struct {
		needed  *Needed
		forGood bool
		left    int           // addresses that are led on
		lease   time.Duration // 0: for good
	}{
		"nothing":                       {&Needed{}, false, 0, 0},
		"the old address":               {&Needed{Leased: []netip.Addr{home}, Lease: time.Hour}, false, 1, time.Hour},
		"for good":                      {&Needed{Leased: []netip.Addr{home}}, false, 1, 0},
		"what its home sends by itself": {&Needed{Leased: []netip.Addr{home, visited}, Moved: []netip.Addr{visited}, Lease: time.Hour}, false, 1, time.Hour},
		"not written down":              {nil, false, 2, config.DefaultLease},
		"not written down, for good":    {nil, true, 2, 0},
	} {
		d := &Detour{ID: "m-00000001", Guest: "web", Away: []netstate.Away{{Addr: home}}, Visiting: []netstate.Visiting{{Addr: visited, Tunnel: "gw-1"}}}
		if stays := c.needed.Settle(d, c.forGood); stays != (c.left > 0) || len(d.Addresses()) != c.left {
			t.Errorf("%s: stays %v with %v", name, stays, d.Addresses())
		}
		if c.left == 0 {
			continue
		}
		if left := clock.Until(d.Until); !d.Leased || d.Until.IsZero() != (c.lease == 0) || c.lease > 0 && (left-c.lease).Abs() > time.Minute {
			t.Errorf("%s: leased %v for %v, want %v", name, d.Leased, left, c.lease)
		}
	}
}

// TestGivenUp: of what a guest came with it has given up what nobody needs here any more, once that is known; its
// home's own is no visitor.
func TestGivenUp(t *testing.T) {
	d := &Detour{Visiting: []netstate.Visiting{{Addr: theirs, Tunnel: "gw-1"}, {Addr: ours}}}
	for name, c := range map[string]struct {
		needed *Needed
		is     bool
	}{
		"not known":         {nil, false},
		"nothing is needed": {&Needed{}, true},
		"it is needed":      {&Needed{Leased: []netip.Addr{theirs}}, false},
		"another one is":    {&Needed{Leased: []netip.Addr{ours}}, true},
		"its home has it":   {&Needed{Moved: []netip.Addr{theirs}}, true},
		"both are":          {&Needed{Leased: []netip.Addr{ours, theirs}}, false},
	} {
		if c.needed.GivenUp(d) != c.is {
			t.Errorf("%s: given up %v", name, !c.is)
		}
	}
	d.Visiting = d.Visiting[1:]
	if (&Needed{}).GivenUp(d) {
		t.Error("it is at home")
	}
}
