package peer

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// TestStrangerOnALaterPath: that a path leads to another host is told as well where the better path failed first.
func TestStrangerOnALaterPath(t *testing.T) {
	ids := fleet(t, "paris", "rome", "milan")
	port := freePort(t)
	serve(t, ids["milan"], port, http.NotFoundHandler(), nil)
	for name, nobody := range map[string]Path{
		"refused":      {Name: "a", Local: loopback, Remote: netip.MustParseAddr("127.0.0.2")},
		"no such here": {Name: "a", Local: netip.MustParseAddr("192.0.2.7"), Remote: loopback},
	} {
		link := NewLink(ids["paris"], "rome", port, []Path{nobody, {Name: "b", Local: loopback, Remote: loopback}})
		t.Cleanup(link.Close)
		_, err := link.dialAny(t.Context())
		if away := (&Unreachable{Cause: err}); !away.Disbelieved() || !strings.Contains(err.Error(), "milan") {
			t.Errorf("%s: %v", name, away)
		}
	}
}
