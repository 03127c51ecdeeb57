package peer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"godwit/internal/need"
	"godwit/lab/wan"
	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		rate int64
		rtt  time.Duration
		want int64
	}{
		{0, 80 * time.Millisecond, 0},
		{125e6, 0, 0},
		{125e6, 80 * time.Millisecond, 20e6}, // 1 Gbit/s
		{12_500_000, 10 * time.Millisecond, 250e3},
		{125e7, 200 * time.Millisecond, mostWindow},
		{1 << 62, time.Hour, mostWindow},
	} {
		if got := Window(c.rate, c.rtt); got != c.want {
			t.Errorf("%d bytes/s over %v: %d bytes, want %d", c.rate, c.rtt, got, c.want)
		}
	}
}

// limit is what the kernel gives a connection of the distant world by itself, bytes.
const limit = 1 << 20

// distant is a host at the other end of a link with an RTT of 80 ms; here and there a connection's
// buffers grow to limit.
type distant struct {
	name string
	path Path
}

func newDistant(t *testing.T) distant {
	need.Root(t)
	f := distant{fmt.Sprintf("t-peer-%d", os.Getpid()), Path{Name: "far", Local: netip.MustParseAddr("10.9.0.1"), Remote: netip.MustParseAddr("10.9.0.2")}}
	if err := netns.Create(f.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(f.name) })
	link, err := wan.StartUser(context.WithoutCancel(t.Context()), wan.End{Device: "up0"}, wan.End{Namespace: f.name, Device: "up0"}, wan.Link{Delay: 40 * time.Millisecond}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	for namespace, addr := range map[string]netip.Addr{"": f.path.Local, f.name: f.path.Remote} {
		if err := netns.Do(namespace, func() error {
			for _, name := range []string{"tcp_rmem", "tcp_wmem"} {
				if err := netns.Sysctl("net.ipv4."+name, fmt.Sprintf("4096 131072 %d", limit)); err != nil {
					return err
				}
			}
			device, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			at, _ := netlink.ParseAddr(addr.String() + "/24")
			return netlink.AddrAdd(device, at)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// socket is what the kernel says of a connection: of its buffers, without what it adds to what was
// set; which of them were set (SO_BUF_LOCK); and how much it may ever be sent at once.
type socket struct {
	send, receive int64
	set, most     int
}

func look(t *testing.T, conn net.Conn) (s socket) {
	t.Helper()
	if err := control(conn, func(fd int) error {
		send, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		receive, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		s.send, s.receive = int64(send/2), int64(receive/2)
		s.set, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK) // MPTCP has none
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		s.most = 65535 << ((*[8]byte)(unsafe.Pointer(info))[6] & 15) // tcpi_snd_wscale
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStreamsHaveRoom: a stream over a long path that carries more than the kernel has buffers for gets
// them, at both ends, and its window can be scaled so far. The kernel is left alone with any other.
func TestStreamsHaveRoom(t *testing.T) {
	f := newDistant(t)
	ids := fleet(t, "paris", "rome")
	streams := make(chan *Stream)
	var err error
	netns.Do(f.name, func() error {
		err = Serve(t.Context(), ids["rome"], []netip.AddrPort{netip.AddrPortFrom(f.path.Remote, 7440)}, http.NotFoundHandler(), func(s *Stream) {
			streams <- s
			<-t.Context().Done()
		}, slog.New(slog.DiscardHandler))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	link := NewLink(ids["paris"], "rome", 7440, []Path{f.path})
	t.Cleanup(link.Close)
	for rate, long := range map[int64]bool{100e6: true, 10e6: true, 1e6: false, 0: false} {
		conn, err := link.Open(within(t, 10*time.Second), f.path, Header{Kind: "lane"}, rate)
		if err != nil {
			t.Fatal(err)
		}
		accepted := <-streams
		here, there, window := look(t, conn), look(t, accepted), accepted.Header.Window
		if least := Window(rate, 80*time.Millisecond); window < least || window > 10*least {
			t.Errorf("%d bytes/s: a window of %d bytes, want %d or little more", rate, window, least)
		}
		switch {
		case long && (here.send != window || there.receive != window || int64(here.most) < window):
			t.Errorf("%d bytes/s: buffers of %d and %d bytes, a window up to %d, want %d", rate, here.send, there.receive, here.most, window)
		case !long && (here.set != 0 || there.set != 0 || there.receive > limit):
			t.Errorf("%d bytes/s: buffers were set: here %+v, there %+v", rate, here, there)
		}
		conn.Close()
	}
}

// TestRoomOfOrdinaryListener: where a listener could not be made wide, the window is no smaller than
// without a buffer that was set.
func TestRoomOfOrdinaryListener(t *testing.T) {
	need.Root(t)
	ln, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	caller, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	roomToReceive(conn, mostWindow)
	if err := control(conn, func(fd int) error {
		bound, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP)
		if bound < mostWindow {
			t.Errorf("a window of at most %d bytes", bound)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestMultipathHasRoom: one MPTCP connection has the window that it is told, at both ends.
func TestMultipathHasRoom(t *testing.T) {
	f := newDistant(t)
	ids := fleet(t, "paris", "rome")
	link := NewLink(ids["paris"], "rome", 7440, []Path{f.path})
	t.Cleanup(link.Close)
	for _, window := range []int64{20e6, 100e3} {
		streams := make(chan *Stream)
		var port uint16
		var err error
		netns.Do(f.name, func() error {
			port, err = ListenStreams(t.Context(), ids["rome"], window, func(s *Stream) {
				streams <- s
				<-t.Context().Done()
			}, slog.New(slog.DiscardHandler))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := link.OpenMultipath(within(t, 10*time.Second), f.path, port, Header{Kind: "lane"}, window)
		if err != nil {
			t.Fatal(err)
		}
		here, there := look(t, conn), look(t, <-streams)
		if room := window * multipathRoom; there.receive != room || int64(here.most) < min(room, mostWindow) {
			t.Errorf("a receive buffer of %d bytes, a window up to %d, want %d", there.receive, here.most, room)
		}
		if long := window > limit; long != (here.send == window) {
			t.Errorf("a send buffer of %d bytes for a window of %d", here.send, window)
		}
		conn.Close()
	}
}

// TestBuffersWithoutTheRight: an agent that may not set large buffers knows that.
func TestBuffersWithoutTheRight(t *testing.T) {
	need.Root(t)
	if b := KernelBuffers(); !b.Larger || b.Send == 0 || b.Receive == 0 {
		t.Errorf("as root: %+v", b)
	}
	done := make(chan Buffers)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with what it gave up
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
			t.Error(err)
		}
		done <- KernelBuffers()
	}()
	if b := <-done; b.Larger || b.Send == 0 || b.Receive == 0 {
		t.Errorf("without rights: %+v", b)
	}
}
