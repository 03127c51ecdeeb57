package mptcp

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAbortOfBound: a subflow that is bound to a device, as those are that endpoints with one open and those of a
// server that listens on one alone, is reset as any other is.
func TestAbortOfBound(t *testing.T) {
	for _, address := range []string{"10.9.11.1", "fd09:11::1"} {
		t.Run(address, func(t *testing.T) {
			addr := netip.MustParseAddr(address)
			loopback(t, netip.PrefixFrom(addr, addr.BitLen()).String())
			listening := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
				var err error
				cerr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") })
				return errors.Join(cerr, err)
			}}
			listening.SetMultipathTCP(true)
			_, server := connectBy(t, listening, address, true)
			local := portOf(t, server.LocalAddr())
			c, ok := side(t, local)
			if !ok || len(c.Subflows) != 1 {
				t.Fatalf("%+v, want one subflow", c)
			}
			if err := Abort(c.Subflows...); errors.Is(err, ErrUnsupported) {
				t.Skipf("this kernel cannot: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			await(t, "the abort", func() bool { _, ok := side(t, local); return !ok })
		})
	}
}
