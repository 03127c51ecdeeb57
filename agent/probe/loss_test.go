package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// TestLoss: what is not answered counts as lost, once, and what is answered twice or by another's word does not count twice,
// nor does what was never sent.
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
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
			if c.want == 0 && int(binary.BigEndian.Uint16(probe[TokenLength:])) == packets-1 {
				cancel() // as long as none was answered one may be, however long that takes
			}
			if c.lost(int(binary.BigEndian.Uint16(probe[TokenLength:]))) {
				return
			}
			conn.WriteToUDPAddrPort([]byte("another's"), from) //nolint:errcheck // as below
			never := bytes.Clone(probe)
			binary.BigEndian.PutUint16(never[TokenLength:], packets)
			conn.WriteToUDPAddrPort(never, from) //nolint:errcheck // as below
			conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // it counts as lost
			if c.twice {
				conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // as above
			}
		})
		got, err := Loss(ctx, remote.Addr(), remote, make([]byte, TokenLength), packets, 100*time.Microsecond)
		if err != nil || got.Sent != packets || got.Answered != c.want || (got.RTT > 0) != (c.want > 0) {
			t.Errorf("%s: %+v, %v; want %d answered", name, got, err, c.want)
		}
	}
}

// TestLossOverALongPath: where the first answer comes long after the last packet, what it lost is told all the same.
func TestLossOverALongPath(t *testing.T) {
	const packets, slow = 50, 2 * trainLeast
	var late sync.WaitGroup
	t.Cleanup(late.Wait) // after the port is closed
	var sent [][]byte
	remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
		if sent = append(sent, bytes.Clone(probe)); len(sent) < packets {
			return
		}
		late.Go(func() {
			time.Sleep(slow)
			for number, probe := range sent {
				if number%10 != 3 {
					conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // it counts as lost
				}
			}
		})
	})
	got, err := Loss(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), packets, 100*time.Microsecond)
	if err != nil || got.Sent != packets || got.Answered != packets-5 || got.RTT < slow {
		t.Errorf("%+v, %v; want %d of %d answered, after %v", got, err, packets-5, packets, slow)
	}
}

// TestLossOfAnUnansweredEnd: packets whose answers could not have come before no more were waited for have not been lost.
func TestLossOfAnUnansweredEnd(t *testing.T) {
	const ms = time.Millisecond
	begin := time.Now()
	var all []packet
	for number := range 900 {
		one := packet{sent: begin.Add(time.Duration(number) * ms)}
		if number%10 != 3 && number <= 500 { // a second each way, and waited for 1.5 s in all
			one.took = time.Second
		}
		all = append(all, one)
	}
	if got, want := tally(all, begin.Add(1500*ms)), (Train{Sent: 501, Answered: 451, RTT: time.Second}); got != want {
		t.Errorf("cut short: %+v, want %+v", got, want)
	}
	if got, want := tally(all, begin.Add(2000*ms)), (Train{Sent: 900, Answered: 451, RTT: time.Second}); got != want {
		t.Errorf("all could have come: %+v, want %+v", got, want)
	}
	if got, want := tally(all[:0], begin), (Train{}); got != want {
		t.Errorf("none was sent: %+v, want %+v", got, want)
	}
	all[7].took = 2 * time.Second // one that took longer hides nothing of the others
	if got, want := tally(all, begin.Add(1500*ms)), (Train{Sent: 501, Answered: 451, RTT: time.Second}); got != want {
		t.Errorf("one took longer: %+v, want %+v", got, want)
	}
	for number := 490; number <= 600; number++ { // some that had less time than most take, and are there
		all[number].took = 900 * ms
	}
	if got, want := tally(all, begin.Add(1500*ms)), (Train{Sent: 501, Answered: 452, RTT: time.Second}); got != want {
		t.Errorf("some were early: %+v, want %+v", got, want)
	}
}
