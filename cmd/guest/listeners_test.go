package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"

	"godwit/vm/guest"
)

// TestChannelListsListeners: what takes new clients at one address alone is told, and nothing else: not what listens on
// all addresses, what a client is bound to, or where the kernel itself listens.
func TestChannelListsListeners(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		if _, err := c.Configure(t.Context(), configureOld()); err != nil {
			t.Fatal(err)
		}
		at, six := oldV4.Addr().String(), oldV6.Addr().String()
		var listening net.ListenConfig
		tcp := func(multipath bool, at string) uint16 {
			listening.SetMultipathTCP(multipath)
			l, err := listening.Listen(context.Background(), "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return l.Addr().(*net.TCPAddr).AddrPort().Port()
		}
		udp := func(at string) {
			l, err := listening.ListenPacket(context.Background(), "udp", at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}
		want := []string{
			fmt.Sprintf("tcp %s:%d", at, tcp(true, at+":0")),
			fmt.Sprintf("tcp %s:%d", at, tcp(false, at+":0")),
			fmt.Sprintf("tcp [%s]:%d", six, tcp(false, "["+six+"]:0")),
			fmt.Sprintf("udp %s:%d", at, 5302),
		}
		udp(at + ":5302")
		tcp(true, ":0")
		tcp(true, "0.0.0.0:0")
		tcp(false, "127.0.0.1:0")
		udp(":5303")
		udp(at + ":0")
		udp(at + ":68")
		alone, err := c.Listeners(t.Context(), oldV4.Addr(), oldV6.Addr())
		if err != nil || alone.Omitted != 0 {
			t.Fatalf("%d omitted, %v", alone.Omitted, err)
		}
		var got []string
		for _, l := range alone.List {
			got = append(got, l.Kind+" "+l.Local.String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
