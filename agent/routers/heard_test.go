package routers

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/netstate"
)

// brought is of a router of the link from which a guest came.
var brought = agenttest.AdvertisedBy("fe80::b", 1800)

// TestRoutersHeard: the last word of each router counts, as long as it is one by that; those heard
// last come first, and no crowd of them is kept.
func TestRoutersHeard(t *testing.T) {
	var r Heard
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	r.Hear(agenttest.AdvertisedBy("fe80::1", 60), at(0))
	r.Hear(agenttest.AdvertisedBy("fe80::2", 600), at(1))
	r.Hear(agenttest.AdvertisedBy("fe80::3", 0), at(2))
	r.Hear(agenttest.AdvertisedBy("fe80::1", 30), at(3))
	for _, c := range []struct {
		at   int
		want []string
	}{
		{4, []string{"fe80::1", "fe80::3", "fe80::2"}},
		{33, []string{"fe80::3", "fe80::2"}},
		{601, []string{"fe80::3"}},
		{1802, nil},
	} {
		if got := agenttest.Routers(r.At(at(c.at))); !slices.Equal(got, c.want) {
			t.Errorf("after %d s: %v, want %v", c.at, got, c.want)
		}
	}
	if got := r.At(at(4))[0].Lasts(); got != 30*time.Second {
		t.Errorf("the first one's last word lasts %s", got)
	}
	crowd := netip.MustParseAddr("fe80::100")
	for i := range 100 {
		r.Hear(agenttest.AdvertisedBy(crowd.String(), 600), at(10+i))
		crowd = crowd.Next()
	}
	if got := r.At(at(110)); len(r.said) != mostRouters || len(got) != netstate.MaxAdvertisements || got[0].Router != crowd.Prev() {
		t.Errorf("of a crowd %d are remembered, and %v told", len(r.said), agenttest.Routers(got))
	}
}
