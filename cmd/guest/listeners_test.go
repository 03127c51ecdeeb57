package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"

	"godwit/vm/guest"

	"golang.org/x/sys/unix"
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
		udp := func(network, at string) {
			l, err := listening.ListenPacket(context.Background(), network, at)
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
			fmt.Sprintf("udp %s:%d", at, 5304),
		}
		udp("udp", at+":5302")
		tcp(true, ":0")
		tcp(true, "0.0.0.0:0")
		tcp(false, "127.0.0.1:0")
		udp("udp", ":5303")
		udp("udp", at+":0")
		udp("udp", at+":68")
		device := "lo" // as a DNS server of virtual machines has its bridge
		listening.Control = func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
				if device != "" {
					err = errors.Join(err, unix.BindToDevice(int(fd), device))
				}
			})
			return errors.Join(err, failed)
		}
		udp("udp4", "0.0.0.0:5304")
		device = ""
		udp("udp", at+":5304")
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
