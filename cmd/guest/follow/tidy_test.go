package follow

import (
	"net/netip"
	"slices"
	"testing"

	"godwit/netstate/mptcp"
)

// TestTidyLeavesOneOfSeveral: who came by announcements with ports alone, and was told of several as somebody else did not
// come, keeps one of these; who came by the connection's own port needs none.
func TestTidyLeavesOneOfSeveral(t *testing.T) {
	endpoint := func(id uint8) mptcp.Endpoint {
		return mptcp.Endpoint{ID: id, Addr: to, Port: nudgePort + uint16(id), Flags: mptcp.FlagSignal}
	}
	on := func(ports ...uint16) (c mptcp.Connection) {
		c.Subflows = []mptcp.Subflow{{Local: netip.AddrPortFrom(from, 80), State: mptcp.StateEstablished}}
		for _, port := range ports {
			c.Subflows = append(c.Subflows, mptcp.Subflow{Local: netip.AddrPortFrom(to, port), State: mptcp.StateEstablished})
		}
		return c
	}
	for name, c := range map[string]struct {
		connections []mptcp.Connection
		want        []uint8
	}{
		"nobody came":                   {[]mptcp.Connection{on()}, []uint8{3, 5, 7}},
		"by its own port, and told":     {[]mptcp.Connection{on(80, nudgePort+3, nudgePort+5)}, []uint8{3, 5, 7}},
		"by one of them":                {[]mptcp.Connection{on(nudgePort + 3)}, []uint8{5, 7}},
		"by all of them":                {[]mptcp.Connection{on(nudgePort+3, nudgePort+5, nudgePort+7)}, []uint8{3, 5}},
		"by all, and another by one":    {[]mptcp.Connection{on(nudgePort+3, nudgePort+5, nudgePort+7), on(nudgePort + 5)}, []uint8{3, 7}},
		"one by two, another by others": {[]mptcp.Connection{on(nudgePort+3, nudgePort+5), on(nudgePort+5, nudgePort+7)}, []uint8{3, 7}},
	} {
		var got []uint8
		for _, e := range unneeded([]mptcp.Endpoint{endpoint(3), endpoint(5), endpoint(7)}, c.connections) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v go, want %v", name, got, c.want)
		}
	}
}
