package follow

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/netstate/mptcp"
)

// TestDeafBackups: a client with backups moves. Its kernel tells that the address on which the connection began is
// gone, and of no backup, as it has none by which to send that; nobody ever sends by those, so that nothing is seen to
// be unanswered. All but the new ones go: an announcement by any of them reaches nobody.
func TestDeafBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := netip.MustParseAddr("10.1.1.10")
		begun := time.Now()
		heard := map[uint16]time.Time{1: begun, 2: begun.Add(300 * time.Microsecond), 3: begun.Add(time.Millisecond)} // idle ever since, by remote port
		time.Sleep(10 * time.Second)
		m := &Moves{joined: map[uint32]arrival{}, left: map[uint32]time.Time{}}
		for _, port := range []uint16{4, 5, 6} { // from where it is now
			heard[port] = time.Now()
			time.Sleep(15 * time.Millisecond) // a slow guest is told late
			m.take(mptcp.Event{Kind: mptcp.SubEstablished, Token: 7}, time.Now())
		}
		m.take(mptcp.Event{Kind: mptcp.Removed, Token: 7}, time.Now())
		m.take(mptcp.Event{Kind: mptcp.Removed, Token: 8}, time.Now()) // of its addresses it had several, and came from nowhere else
		time.Sleep(2 * time.Second)
		heard[4] = time.Now()
		c := mptcp.Connection{}
		for port := range uint16(6) {
			place := byte(0)
			if port >= 3 {
				place = 1
			}
			c.Subflows = append(c.Subflows, mptcp.Subflow{Local: netip.AddrPortFrom(old, 80), State: mptcp.StateEstablished, FullyEstablished: true,
				Remote:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, place, byte(port)}), port+1),
				Figures: mptcp.Figures{Silent: time.Since(heard[port+1])}})
		}
		for token, want := range map[uint32][]uint16{7: {1, 2, 3}, 8: nil} {
			c.Token = token
			w := &watch{params: awaitOf(netip.MustParseAddr("10.2.1.10"), old), behind: map[uint32]mptcp.Connection{token: c}, moves: m}
			var got []uint16
			for _, s := range w.deaf() {
				got = append(got, s.Remote.Port())
			}
			if !slices.Equal(got, want) {
				t.Errorf("connection %d: %v, want %v", token, got, want)
			}
		}
	})
}

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
