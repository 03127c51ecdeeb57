package routers

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/netstate"
)

// brought is of a router of the link from which a guest came.
var brought = advertisedBy("fe80::b", 1800)

// advertisedBy is what a router says that is one for so many seconds.
func advertisedBy(router string, lifetime uint16) netstate.Advertisement {
	m := binary.BigEndian.AppendUint16([]byte{134, 0, 0, 0, 64, 0}, lifetime)
	return netstate.Advertisement{Router: netip.MustParseAddr(router), Message: append(m, make([]byte, 8)...)}
}

func routersIn(all []netstate.Advertisement) []string {
	var out []string
	for _, ad := range all {
		out = append(out, ad.Router.String())
	}
	return out
}

// TestRoutersHeard: the last word of each router counts, as long as it is one by that; those heard
// last come first, and no crowd of them is kept.
func TestRoutersHeard(t *testing.T) {
	var r Heard
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	r.Hear(advertisedBy("fe80::1", 60), at(0))
	r.Hear(advertisedBy("fe80::2", 600), at(1))
	r.Hear(advertisedBy("fe80::3", 0), at(2))
	r.Hear(advertisedBy("fe80::1", 30), at(3))
	for _, c := range []struct {
		at   int
		want []string
	}{
		{4, []string{"fe80::1", "fe80::3", "fe80::2"}},
		{33, []string{"fe80::3", "fe80::2"}},
		{601, []string{"fe80::3"}},
		{1802, nil},
	} {
		if got := routersIn(r.At(at(c.at))); !slices.Equal(got, c.want) {
			t.Errorf("after %d s: %v, want %v", c.at, got, c.want)
		}
	}
	if got := r.At(at(4))[0].Lasts(); got != 30*time.Second {
		t.Errorf("the first one's last word lasts %s", got)
	}
	crowd := netip.MustParseAddr("fe80::100")
	for i := range 100 {
		r.Hear(advertisedBy(crowd.String(), 600), at(10+i))
		crowd = crowd.Next()
	}
	if got := r.At(at(110)); len(r.said) != mostRouters || len(got) != netstate.MaxAdvertisements || got[0].Router != crowd.Prev() {
		t.Errorf("of a crowd %d are remembered, and %v told", len(r.said), routersIn(got))
	}
}
