package netstate_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate"
)

// TestClamp: connections that begin through the detour, and before it while it is
// prepared, agree on segments that the tunnel carries in one piece, in both families
// and both directions; without Fits they do not.
func TestClamp(t *testing.T) {
	w := newWorld(t, "wireguard")
	for _, g := range []string{"ga", "gb"} {
		for _, network := range []string{"tcp4", "tcp6"} {
			w.Do(g, func() error {
				l, err := net.Listen(network, ":7080")
				if err == nil {
					t.Cleanup(func() { l.Close() })
					go accept(l)
				}
				return err
			})
		}
	}
	const fits = 1200
	for _, c := range []struct {
		name   string
		fits   int
		active bool
		most4  int
		most6  int
	}{
		{"prepared, no clamp", 0, false, 1460, 1440},
		{"prepared", fits, false, fits - 40, fits - 60},
		{"away, no clamp", 0, true, 1460, 1440},
		{"away", fits, true, fits - 40, fits - 60},
	} {
		here, there := home(c.active), abroad()
		for i := range here.Away {
			here.Away[i].Fits, there.Visiting[i].Fits = c.fits, c.fits
		}
		w.set("hb", there)
		w.set("ha", here)
		w.Do("ha", func() error {
			inv, err := netstate.Found()
			if inv.States["web"].Away[0].Fits != c.fits {
				t.Errorf("%s: found %+v", c.name, inv.States["web"].Away[0])
			}
			return err
		})
		for addr, most := range map[netip.Addr]int{guest4: c.most4, guest6: c.most6} {
			near, far := w.segments(addr)
			// What is left of an MSS beside the timestamps option, 12 bytes.
			if near != most-12 || far != most-12 {
				t.Errorf("%s, %s: segments of %d bytes to the guest and %d from it, want %d", c.name, addr, near, far, most-12)
			}
		}
	}
}

// accepted tells the segment size of the last connection that a guest took.
var accepted = make(chan int, 16)

func accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		accepted <- segment(conn)
		conn.Close()
	}
}

// segment is how large conn's segments may be.
func segment(conn net.Conn) (size int) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) { size, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	return size
}

// segments connects the client to the guest and returns both ends' segment sizes.
func (w *world) segments(addr netip.Addr) (near, far int) {
	w.t.Helper()
	var conn net.Conn
	w.Do("c", func() (err error) {
		conn, err = net.DialTimeout("tcp", netip.AddrPortFrom(addr, 7080).String(), 3*time.Second)
		return err
	})
	defer conn.Close()
	select {
	case far = <-accepted:
	case <-time.After(3 * time.Second):
		w.t.Fatal("the guest took no connection")
	}
	return segment(conn), far
}
