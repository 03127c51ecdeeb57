package netstate

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestPublishedLeaves: what speakers of BGP announce is theirs no more once its guest goes home, and what comes until
// routers have heard that goes after it, by whichever device it comes; before, and where the guest is here again, it
// goes to the guest.
func TestPublishedLeaves(t *testing.T) {
	v := Visiting{
		Addr: netip.MustParseAddr("10.1.1.10"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Tap: "gwt1a", Taps: []string{"gwt1a"},
		Tunnel: "gwt-home", Publish: 6700, Direct: true, Leaves: "gwt-next",
	}
	published := func(r resource) bool { way, is := r.(route); return is && way.table == 6700 }
	toGuest := func(r resource) bool { return r == here(v.Addr) }
	after := func(r resource) bool {
		rule, is := r.(policyRule)
		return is && rule == policyRule{dst: v.Addr, priority: PriorityArriving, own: true}
	}
	for _, flipped := range []bool{false, true, false} {
		v.Active = flipped
		list := visiting("br-guest", v)
		if slices.ContainsFunc(list, published) == flipped || slices.ContainsFunc(list, toGuest) == flipped || slices.ContainsFunc(list, after) != flipped {
			t.Errorf("flipped %v: %+v", flipped, list)
		}
	}
	v.Publish, v.Direct, v.Active = 0, false, true // neighbours alone send it here
	if slices.ContainsFunc(visiting("br-guest", v), after) {
		t.Error("of what nobody publishes more goes after the guest than what comes by the bridge")
	}
	v.Direct = true // this host is the router, by which it comes from everywhere
	if !slices.ContainsFunc(visiting("br-guest", v), after) {
		t.Error("what this host is the router of does not go after the guest")
	}
}
