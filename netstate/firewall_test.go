package netstate_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/internal/nettest"
)

// TestFirewall: hosts that filter by state, and take what they did not see begin for
// invalid, let connections through in their middle while these take a detour, and do not
// after it; with the strict reverse path filter and the loose one.
func TestFirewall(t *testing.T) {
	for _, filter := range []string{"1", "2"} {
		t.Run("rp_filter "+filter, func(t *testing.T) {
			w := newWorld(t, "vxlan")
			w.IP("ga", "link set dev eth0 down")
			for _, h := range []string{"ha", "hb"} {
				w.Run(h, "sh", "-c", "cd /proc/sys/net/ipv4/conf; for d in *; do echo "+filter+" >$d/rp_filter; done")
				w.Run(h, "sh", "-c", "echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
			}
			before := w.dumps()
			w.set("hb", abroad())
			w.set("ha", home(true))
			for _, addr := range []netip.Addr{guest4, guest6} {
				conn := w.talk(addr)
				for _, h := range []string{"ha", "hb"} {
					w.Run(h, "nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 0; }; add rule inet fw f ct state invalid drop")
				}
				if !echoes(conn, 5*time.Second) {
					t.Errorf("%s: a connection ends at a firewall that did not see it begin", addr)
				}
				for _, h := range []string{"ha", "hb"} {
					w.Run(h, "nft", "delete table inet godwit")
				}
				if echoes(conn, short) {
					t.Errorf("%s: the firewall lets it through anyway, which shows nothing", addr)
				}
				w.set("hb", abroad())
				w.set("ha", home(true))
				if !echoes(conn, 10*time.Second) {
					t.Errorf("%s: Set did not open the firewall again", addr)
				}
				for _, h := range []string{"ha", "hb"} {
					w.Run(h, "nft", "delete table inet fw")
				}
			}
			w.cleared(before, "web")
		})
	}
}

// talk opens a TCP connection from the client to an echo server of the guest.
func (w *world) talk(addr netip.Addr) net.Conn {
	w.t.Helper()
	var l net.Listener
	w.Do("gb", func() (err error) { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String()); return err })
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.t.Cleanup(func() { conn.Close() })
			go func() {
				b := make([]byte, 64)
				for {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					conn.Write(b[:n]) //nolint:errcheck // the test sees it
				}
			}()
		}
	}()
	var conn net.Conn
	nettest.Eventually(w.t, "a connection to "+addr.String(), 5*time.Second, func() bool {
		var err error
		w.Do("c", func() error { conn, err = net.DialTimeout("tcp", l.Addr().String(), time.Second); return nil })
		return err == nil
	})
	w.t.Cleanup(func() { conn.Close() })
	if !echoes(conn, 3*time.Second) {
		w.t.Fatalf("%s: no echo", addr)
	}
	return conn
}

// words counts what [echoes] has written.
var words atomic.Uint32

// echoes says whether what is written comes back within limit. What was written before and comes only now is
// not taken for it.
func echoes(conn net.Conn, limit time.Duration) bool {
	word := byte(words.Add(1))
	if _, err := conn.Write([]byte{word}); err != nil {
		return false
	}
	b := make([]byte, 64)
	for p := need.Patient(limit); !p.Over(); {
		conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := conn.Read(b)
		if bytes.IndexByte(b[:n], word) >= 0 {
			return true
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return false
}

// TestHostsOwnFirewall: hosts that take in nothing but answers have those of the guest, at its home and
// where it is, and it has theirs.
func TestHostsOwnFirewall(t *testing.T) {
	w := newWorld(t, "wireguard")
	for _, h := range []string{"ha", "hb"} {
		w.load(h, `table inet own { chain in { type filter hook input priority filter; policy drop; iif lo accept; ct state established,related accept; meta l4proto { icmp, icmpv6 } accept; iifname up0 udp dport 4789 accept; tcp dport 7008 ct state new accept; }; }`)
	}
	w.set("hb", abroad())
	w.set("ha", home(true))
	w.IP("ga", "link set dev eth0 down")
	for _, h := range []struct{ name, v4, v6 string }{{"ha", "100.64.0.11", "fd64:0::11"}, {"hb", "100.65.0.11", "fd64:1::11"}} {
		for guest, host := range map[netip.Addr]string{guest4: h.v4, guest6: h.v6} {
			if !w.opens(h.name, "gb", guest, long) {
				t.Errorf("%s does not hear %s", h.name, guest)
			}
			if !w.opens("gb", h.name, netip.MustParseAddr(host), long) {
				t.Errorf("%s does not hear %s at %s", guest, h.name, host)
			}
		}
	}
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.opens("c", "gb", addr, long) {
			t.Errorf("%s does not answer its client", addr)
		}
	}
}

// opens says whether a TCP connection is opened from one namespace to an address of another within limit, and
// carries something there and back.
func (w *world) opens(from, at string, addr netip.Addr, limit time.Duration) bool {
	w.t.Helper()
	to := netip.AddrPortFrom(addr, 7008).String()
	var l net.Listener
	w.Do(at, func() (err error) { l, err = net.Listen("tcp", to); return err })
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.CopyN(conn, conn, 1) //nolint:errcheck // the test sees it
	}()
	ok := false
	w.Do(from, func() error {
		conn, err := net.DialTimeout("tcp", to, limit)
		if err == nil {
			ok = echoes(conn, limit)
			conn.Close()
		}
		return nil
	})
	return ok
}
