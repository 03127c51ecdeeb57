package probe

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// answering is a port at which probes come to answer, until the test ends. What that gets is
// good until it returns.
func answering(t *testing.T, answer func(conn *net.UDPConn, from netip.AddrPort, probe []byte)) netip.AddrPort {
	t.Helper()
	return answeringAt(t, "127.0.0.1:0", answer)
}

// answeringAt is that at one of this host's addresses.
func answeringAt(t *testing.T, at string, answer func(conn *net.UDPConn, from netip.AddrPort, probe []byte)) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
	if err != nil {
		t.Fatal(err)
	}
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		buf := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			answer(conn, from, buf[:n])
		}
	}()
	t.Cleanup(func() { conn.Close(); <-serving })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// A path that loses most of what it is sent, or takes long, carries something.
func TestProbePathIsPatient(t *testing.T) {
	const slow = 800 * time.Millisecond
	var late sync.WaitGroup
	t.Cleanup(late.Wait) // after the port is closed
	remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
		if probe[TokenLength] < 4 {
			return // lost
		}
		answer := bytes.Clone(probe)
		late.Go(func() {
			time.Sleep(slow)
			conn.WriteToUDPAddrPort(answer, from) //nolint:errcheck // the probe fails without it
		})
	})
	for tries := 1; ; tries++ {
		rtt, err := RoundTrip(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), Least)
		if rtt >= slow && rtt <= 2*slow {
			return
		}
		if err == nil && rtt < slow || tries == 5 { // what is slower was, on a busy machine
			t.Fatalf("%v, %v; want a little more than %v", rtt, err, slow)
		}
	}
}

// TestProbeIsAsLargeAsItSays: a packet of a size has its headers in it, those of IPv6 too.
func TestProbeIsAsLargeAsItSays(t *testing.T) {
	const size = 1580
	for at, headers := range map[string]int{"127.0.0.1:0": 20 + 8, "[::1]:0": 40 + 8} {
		sizes := make(chan int, probeTries)
		remote := answeringAt(t, at, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
			sizes <- len(probe) + headers
			conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // the probe fails without it
		})
		if _, err := RoundTrip(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), size); err != nil {
			t.Error(err)
		}
		if got := <-sizes; got != size {
			t.Errorf("from %s: a packet of %d bytes, want %d", remote.Addr(), got, size)
		}
	}
}

// TestOneAnswerCounts: who has waited as long as it may takes the one answer that there was.
func TestOneAnswerCounts(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
		if probe[TokenLength] == 0 {
			conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // the probe fails without it
		} else {
			end()
		}
	})
	if rtt, err := RoundTrip(ctx, remote.Addr(), remote, make([]byte, TokenLength), Least); rtt == 0 || err != nil {
		t.Errorf("%v, %v", rtt, err)
	}
}

// TestSizeIsWhy: where small packets are answered, and large ones are not, it is no firewall and no cut uplink.
func TestSizeIsWhy(t *testing.T) {
	remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
		if len(probe) < 1000 {
			conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // the probe fails without it
		}
	})
	_, err := RoundTrip(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), 1580)
	if err == nil || !strings.Contains(err.Error(), "1580 bytes neither fits nor passes in fragments") || strings.Contains(err.Error(), "firewall") {
		t.Error(err)
	}
}

// TestNoUDP: where nothing is answered, that may be a firewall that knows of the agents' TCP alone, or a cut uplink,
// and the line says so.
func TestNoUDP(t *testing.T) {
	remote := answering(t, func(*net.UDPConn, netip.AddrPort, []byte) {})
	_, err := RoundTrip(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), 1580)
	if want := fmt.Sprintf("a firewall takes no UDP to port %d", remote.Port()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

// TestPathMTUWaitsForNothing: what our own link does not take is not waited for, nor is anything
// when the largest that it takes was answered.
func TestPathMTUWaitsForNothing(t *testing.T) {
	here := netip.MustParseAddr("127.0.0.1")
	r, err := Reflect(t.Context(), []netip.AddrPort{netip.AddrPortFrom(here, 0)})
	if err != nil {
		t.Fatal(err)
	}
	remote := netip.AddrPortFrom(here, r.LikeTunnels(here))
	const wait = 20 * time.Second // twice
	begun := time.Now()
	if mtu, err := MTU(t.Context(), here, remote, r.Token(), 1580, wait); mtu != 1580 || err != nil {
		t.Errorf("%d, %v", mtu, err)
	}
	if took := time.Since(begun); took > wait/4 {
		t.Errorf("it took %v", took)
	}
}

// TestPathMTUOfNarrowPath: of what is not answered, the largest that was counts, after the wait.
func TestPathMTUOfNarrowPath(t *testing.T) {
	const narrow = 1400
	remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
		if len(probe)+28 <= narrow {
			conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // the probe fails without it
		}
	})
	mtu, err := MTU(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), 1580, 300*time.Millisecond)
	if mtu != narrow || err != nil {
		t.Errorf("%d, %v; want %d", mtu, err, narrow)
	}
}

// TestPathMTUOfAnyGuest: what guests of any MTU need is tried, also where it is less than what links usually have, or more.
func TestPathMTUOfAnyGuest(t *testing.T) {
	remote := answering(t, func(conn *net.UDPConn, from netip.AddrPort, probe []byte) {
		conn.WriteToUDPAddrPort(probe, from) //nolint:errcheck // the probe fails without it
	})
	for _, most := range []int{576 + 80, 9216 + 80, 65000 + 80} {
		if mtu, err := MTU(t.Context(), remote.Addr(), remote, make([]byte, TokenLength), most, 300*time.Millisecond); mtu != most || err != nil {
			t.Errorf("%d, %v; want %d", mtu, err, most)
		}
	}
}

// ailing is a UDP socket that could not be read for a while.
type ailing struct {
	reads   []error // what is to come of each; nil: a probe
	probe   []byte
	answers [][]byte
}

func (a *ailing) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	if len(a.reads) == 0 {
		return 0, netip.AddrPort{}, net.ErrClosed
	}
	err := a.reads[0]
	if a.reads = a.reads[1:]; err != nil {
		return 0, netip.AddrPort{}, &net.OpError{Op: "read", Net: "udp", Err: err}
	}
	return copy(b, a.probe), netip.MustParseAddrPort("192.0.2.1:7"), nil
}

func (a *ailing) WriteToUDPAddrPort(b []byte, _ netip.AddrPort) (int, error) {
	a.answers = append(a.answers, bytes.Clone(b))
	return len(b), nil
}

// TestReflectsAgain: probes are answered when they can be read again: else no guest would come by this host until its
// agent is started anew.
func TestReflectsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Reflector{tokens: map[[TokenLength]byte]time.Time{}}
		conn := &ailing{reads: []error{syscall.ENOBUFS, syscall.ENOMEM, nil}, probe: append(r.Token(), "probe"...)}
		if r.serve(conn); len(conn.answers) != 1 || !bytes.Equal(conn.answers[0], conn.probe) {
			t.Errorf("answered %q", conn.answers)
		}
	})
}
