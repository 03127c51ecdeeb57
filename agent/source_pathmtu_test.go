package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// TestUnknownMTUIsExplained: of a path on which nothing was answered there is no error, and the note said "(<nil>)".
func TestUnknownMTUIsExplained(t *testing.T) {
	local, remote := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.1")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "its MTU is not known (no packet of 1000 bytes or more was answered"},
		{errors.New("permission denied"), "its MTU is not known (permission denied)"},
	} {
		if got := mtuUnknown(local, remote, c.err); !strings.Contains(got, c.want) || strings.Contains(got, "nil") {
			t.Errorf("%v: %s", c.err, got)
		}
	}
}
