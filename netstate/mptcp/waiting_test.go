package mptcp

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// TestWaiting: what a program has written and the other end has not got is seen, of TCP and of
// MPTCP, until it has.
func TestWaiting(t *testing.T) {
	loopback(t, "10.9.8.1/32")
	for name, multipath := range map[string]bool{"mptcp": true, "fallback": false} {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, "10.9.8.1", multipath)
			for side, c := range map[string][2]net.Conn{"client": {client, server}, "server": {server, client}} {
				to := portOf(t, c[0].RemoteAddr())
				if n, err := Waiting(to); n != 0 || err != nil {
					t.Fatalf("%s: %d before anything was written, %v", side, n, err)
				}
				wrote := int64(0)
				c[0].SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) //nolint:errcheck // of a socket
				for err := error(nil); err == nil; {
					var n int
					n, err = c[0].Write(make([]byte, 64<<10))
					wrote += int64(n)
				}
				if n, err := Waiting(to); n < 64<<10 || n > wrote || err != nil {
					t.Errorf("%s: %d of %d that were written, %v", side, n, wrote, err)
				}
				if _, err := io.CopyN(io.Discard, c[1], wrote); err != nil {
					t.Fatal(err)
				}
				await(t, side+": that nothing waits", func() bool {
					n, err := Waiting(to)
					return n == 0 && err == nil
				})
			}
		})
	}
}

// TestLimitSend: after it a program's socket takes about so much more, and no more, until the
// other end reads; what was written arrives.
func TestLimitSend(t *testing.T) {
	loopback(t, "10.9.9.1/32")
	for name, multipath := range map[string]bool{"mptcp": true, "fallback": false} {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, "10.9.9.1", multipath)
			from := portOf(t, client.LocalAddr())
			const limit = 100_000
			if n, err := LimitSend(os.Getpid(), from, limit); n != 1 || err != nil {
				t.Fatalf("%d sockets, %v", n, err)
			}
			if n, err := LimitSend(os.Getpid(), netip.AddrPortFrom(from.Addr(), 1), limit); n != 0 || err != nil {
				t.Errorf("%d sockets to nobody, %v", n, err)
			}
			wrote := int64(0)
			server.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) //nolint:errcheck // of a socket
			for err := error(nil); err == nil; {
				var n int
				n, err = server.Write(make([]byte, 64<<10))
				wrote += int64(n)
			}
			if n, err := Waiting(from); n > 3*limit || err != nil {
				t.Errorf("%d bytes wait, %v; the limit was %d", n, err, limit)
			}
			if _, err := io.CopyN(io.Discard, client, wrote); err != nil {
				t.Fatal(err)
			}
		})
	}
}
