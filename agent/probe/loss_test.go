package probe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestLoss: what is not answered counts as lost, once, and what is answered twice or by another's word does not count twice.
func TestLoss(t *testing.T) {
	const packets = 50
	for name, c := range map[string]struct {
		lost  func(number int) bool
		twice bool
		want  int
	}{
		"nothing is lost":  {func(int) bool { return false }, false, packets},
		"each tenth":       {func(n int) bool { return n%10 == 3 }, false, packets - 5},
		"answered twice":   {func(n int) bool { return n%10 == 3 }, true, packets - 5},
		"nothing answered": {func(int) bool { return true }, false, 0},
	} {
		remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
			if c.lost(int(binary.BigEndian.Uint16(probe[TokenLength:]))) {
				return
			}
			conn.WriteToUDPAddrPort([]byte("another's"), from) //nolint:errcheck // as below
			conn.WriteToUDPAddrPort(probe, from)               //nolint:errcheck // it counts as lost
			if c.twice {
				conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // as above
			}
		})
		got, err := Loss(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), packets, 100*time.Microsecond)
		if err != nil || got.Sent != packets || got.Answered != c.want || (got.RTT > 0) != (c.want > 0) {
			t.Errorf("%s: %+v, %v; want %d answered", name, got, err, c.want)
		}
	}
}
