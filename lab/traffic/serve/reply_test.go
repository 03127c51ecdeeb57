package serve

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// The answer leaves from the address that was asked, not from the one that
// routing would choose.
func TestRepliesLeaveFromTheAddressAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, test := range []struct{ network, bind, ask string }{
		{"udp4", "0.0.0.0:0", "127.0.0.77"},
		{"udp6", "[::]:0", "::1"},
	} {
		pc, err := net.ListenPacket(test.network, test.bind)
		if err != nil {
			t.Fatal(err)
		}
		c := pc.(*net.UDPConn)
		defer c.Close()
		if err := wantDestination(c, test.network == "udp6"); err != nil {
			t.Fatal(err)
		}
		go answerAll(ctx, c, newEcho())
		me, err := net.ListenUDP(test.network, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer me.Close()
		to := netip.AddrPortFrom(netip.MustParseAddr(test.ask), uint16(c.LocalAddr().(*net.UDPAddr).Port))
		if _, err := me.WriteToUDPAddrPort([]byte("are you there"), to); err != nil {
			t.Fatal(err)
		}
		_ = me.SetReadDeadline(time.Now().Add(2 * time.Second))
		buf := make([]byte, 100)
		n, from, err := me.ReadFromUDPAddrPort(buf)
		if err != nil || from != to || string(buf[:n]) != "are you there" {
			t.Errorf("%s: %q from %v, %v; want it from %v", test.network, buf[:n], from, err, to)
		}
	}
}
