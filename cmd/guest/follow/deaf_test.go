package follow

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/netstate/mptcp"
)

// TestDeafSubflows: a client that has moved itself is announced to by a subflow that leads to
// where it was, on kernels like 6.1: those go, but for the sake of a connection's last one.
func TestDeafSubflows(t *testing.T) {
	old, next := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	sub := func(local netip.Addr, port uint16, unanswered uint8, state mptcp.State) mptcp.Subflow {
		return mptcp.Subflow{Local: netip.AddrPortFrom(local, 80), Remote: netip.AddrPortFrom(netip.MustParseAddr("198.18.0.10"), port),
			State: state, FullyEstablished: true, Figures: mptcp.Figures{Unanswered: unanswered}}
	}
	half := sub(old, 9, 0, mptcp.StateEstablished)
	half.FullyEstablished = false
	idle := func(port uint16, silent time.Duration) mptcp.Subflow {
		s := sub(old, port, 0, mptcp.StateEstablished)
		s.Silent = silent
		return s
	}
	const left = time.Hour // ago, as is known of token 8
	for name, c := range map[string]struct {
		subflows []mptcp.Subflow
		want     []uint16 // remote ports
	}{
		"one, which is answered":        {[]mptcp.Subflow{sub(old, 1, 0, mptcp.StateEstablished)}, nil},
		"one, which is not":             {[]mptcp.Subflow{sub(old, 1, 5, mptcp.StateEstablished)}, nil},
		"moved":                         {[]mptcp.Subflow{sub(old, 1, deafAfter, mptcp.StateEstablished), sub(old, 2, 0, mptcp.StateEstablished)}, []uint16{1}},
		"moved twice":                   {[]mptcp.Subflow{sub(old, 1, 6, mptcp.StateEstablished), sub(old, 2, 3, mptcp.StateEstablished), sub(old, 3, 0, mptcp.StateEstablished)}, []uint16{1, 2}},
		"none is answered":              {[]mptcp.Subflow{sub(old, 1, 6, mptcp.StateEstablished), sub(old, 2, 3, mptcp.StateEstablished)}, nil},
		"a segment was lost":            {[]mptcp.Subflow{sub(old, 1, deafAfter-1, mptcp.StateEstablished), sub(old, 2, 0, mptcp.StateEstablished)}, nil},
		"the other only begins":         {[]mptcp.Subflow{sub(old, 1, 6, mptcp.StateEstablished), half}, nil},
		"the other closes":              {[]mptcp.Subflow{sub(old, 1, 6, mptcp.StateEstablished), sub(old, 2, 0, mptcp.StateCloseWait)}, nil},
		"it is not on the old address":  {[]mptcp.Subflow{sub(next, 1, 6, mptcp.StateEstablished), sub(old, 2, 0, mptcp.StateEstablished)}, nil},
		"idle, of nobody who left":      {[]mptcp.Subflow{idle(1, 2*left), idle(2, 0)}, nil},
		"left, and idle there":          {[]mptcp.Subflow{idle(1, 2*left), idle(2, 0)}, []uint16{1}},
		"left, and idle since":          {[]mptcp.Subflow{idle(1, left-time.Minute), idle(2, 0)}, nil},
		"left, and heard nowhere since": {[]mptcp.Subflow{idle(1, 2*left), idle(2, 3*left)}, nil},
		"what closes already is let be": {[]mptcp.Subflow{sub(old, 1, 6, mptcp.StateFinWait1), sub(old, 2, 0, mptcp.StateEstablished)}, nil},
	} {
		token := uint32(7)
		if strings.HasPrefix(name, "left") {
			token = 8
		}
		w := &watch{params: awaitOf(next, old), behind: map[uint32]mptcp.Connection{token: {Token: token, Subflows: c.subflows}}, moves: new(Moves)}
		w.moves.left = map[uint32]time.Time{8: time.Now().Add(-left)}
		var got []uint16
		for _, s := range w.deaf() {
			got = append(got, s.Remote.Port())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
