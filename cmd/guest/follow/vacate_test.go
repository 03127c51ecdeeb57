package follow

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/netstate/mptcp"
)

// TestVacant: of the announcements of old addresses those go that somebody took who is behind, and that nobody needs:
// each who has come by them is on the next address, or his client answers on what stays.
func TestVacant(t *testing.T) {
	next := netip.MustParseAddr("10.9.1.3")
	endpoints := []mptcp.Endpoint{
		{ID: 5, Addr: to, Port: nudgePort + 5, Flags: mptcp.FlagSignal},
		{ID: 9, Addr: to, Port: 4009, Flags: mptcp.FlagSignal}, // somebody else's
		{ID: 3, Addr: to, Flags: mptcp.FlagSignal},
		{ID: 4, Addr: netip.MustParseAddr("fd09::2"), Flags: mptcp.FlagSignal},
		{ID: 8, Addr: from, Flags: mptcp.FlagSubflow}, // somebody else's
		{ID: 7, Addr: next, Flags: mptcp.FlagSignal},
	}
	const heard, idle = time.Second, time.Hour
	sub := func(local netip.AddrPort, silent time.Duration, join bool) mptcp.Subflow {
		return mptcp.Subflow{Local: local, State: mptcp.StateEstablished, FullyEstablished: true, Join: join, Figures: mptcp.Figures{Silent: silent}}
	}
	base, port, theirs := netip.AddrPortFrom(to, 80), netip.AddrPortFrom(to, nudgePort+5), netip.AddrPortFrom(to, 4009)
	six, now := netip.AddrPortFrom(endpoints[3].Addr, 80), netip.AddrPortFrom(next, 80)
	both := []mptcp.Subflow{sub(base, heard, true), sub(port, idle, true)}
	byPort := []mptcp.Subflow{sub(port, heard, true)}
	for name, c := range map[string]struct {
		behind, joined [][]mptcp.Subflow
		want           []uint8
	}{
		"told again for another, who has come": {[][]mptcp.Subflow{both}, [][]mptcp.Subflow{append(byPort, sub(now, heard, true))}, []uint8{5}},
		"told again for another, who has not":  {[][]mptcp.Subflow{both, byPort}, nil, nil},
		"by both families":                     {[][]mptcp.Subflow{{sub(base, heard, true), sub(six, idle, true)}}, nil, []uint8{4}},
		"by one":                               {[][]mptcp.Subflow{{sub(base, heard, true)}}, nil, nil},
		"nothing is heard by either":           {[][]mptcp.Subflow{{sub(base, idle, true), sub(six, idle, true)}}, nil, nil},
		"heard by both":                        {[][]mptcp.Subflow{{sub(base, heard, true), sub(port, heard, true)}}, nil, []uint8{5}},
		"began there":                          {[][]mptcp.Subflow{{sub(base, heard, false), sub(theirs, heard, true)}}, nil, nil},
		"another began there, and is behind":   {[][]mptcp.Subflow{{sub(base, idle, true), sub(six, heard, true)}, {sub(base, heard, false)}}, nil, nil},
		"all have come":                        {nil, [][]mptcp.Subflow{append(both, sub(now, heard, true))}, nil},
		"another has come, and what it got is not yet whole": {[][]mptcp.Subflow{both}, [][]mptcp.Subflow{append(byPort,
			mptcp.Subflow{Local: now, State: mptcp.StateEstablished})}, nil},
	} {
		w := &watch{params: awaitOf(next, to), from: time.Now().Add(-time.Minute), behind: map[uint32]mptcp.Connection{}}
		w.params.Old = append(w.params.Old, endpoints[3].Addr, from)
		var connections []mptcp.Connection
		for i, subflows := range slices.Concat(c.behind, c.joined) {
			conn := mptcp.Connection{Token: uint32(i), Subflows: subflows} //nolint:gosec // a few
			if connections = append(connections, conn); i < len(c.behind) {
				w.behind[conn.Token] = conn
			}
		}
		var got []uint8
		for _, e := range w.vacant(endpoints, connections) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v go, want %v", name, got, c.want)
		}
	}
}
