package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/agent/api"
	"godwit/internal/need"
	"godwit/lab/traffic/record"
	"godwit/lab/wan"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

// aTunnel is what an agent tells of one.
func aTunnel(kind, local, remote string) api.GuestTunnel {
	return api.GuestTunnel{Kind: kind, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote)}
}

func TestLostByLinks(t *testing.T) {
	const a, b, c = "100.64.0.11:4001", "100.65.0.11:4002", "100.66.0.11:4003"
	lost := func(src, dst string, length int, n uint64) wan.Lost {
		return wan.Lost{Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst), Length: length, Datagrams: n}
	}
	links := map[string]wan.Counters{
		"a/u": {Lost: []wan.Lost{lost(a, b, 1532, 1), lost(b, a, 96, 2), lost(a, b, sealed(record.ProbePacket), 4)}},
		"b/u": {Lost: []wan.Lost{lost(a, c, 1532, 8), lost(b, c, 1532, 16), lost(a, "100.65.0.11:4009", 1532, 32)}},
	}
	r := &run{}
	if n := r.lostByLinks("web", links); n != 0 {
		t.Errorf("%d before any tunnel is known", n)
	}
	r.learn(api.GuestInfo{Name: "db", Tunnels: []api.GuestTunnel{aTunnel(tunnel.WireGuard, b, c)}})
	r.learn(api.GuestInfo{Name: "web", Tunnels: []api.GuestTunnel{aTunnel(tunnel.WireGuard, a, b)}})
	r.learn(api.GuestInfo{Name: "web", Tunnels: []api.GuestTunnel{aTunnel(tunnel.GRE, a, "100.65.0.11:4009")}})
	if n := r.lostByLinks("web", links); n != 1+2 {
		t.Errorf("%d, want 3", n)
	}
	r.learn(api.GuestInfo{Name: "web", Tunnels: []api.GuestTunnel{aTunnel(tunnel.WireGuard, c, a)}}) // the first is gone
	if n := r.lostByLinks("web", links); n != 1+2+8 {
		t.Errorf("%d, want 11", n)
	}
	if n := r.lostByLinks("db", links); n != 16 {
		t.Errorf("of the other guest %d, want 16", n)
	}
}

// TestProbesHaveALengthOfTheirOwn: no record that a client or a guest sends, alone in a packet, is as long in a tunnel as
// a prober's packet. Headers are those of IP, UDP, and TCP with its timestamps and what MPTCP adds to data.
func TestProbesHaveALengthOfTheirOwn(t *testing.T) {
	const udp, tcp, shortest, longest = 8, 32, 24, 28 // the last two: MPTCP's sequence signal
	frames := map[string]int{
		"acknowledgement of TCP": 0, "ping, acknowledgement, question of udp": record.HeaderSize, "pong": record.HeaderSize + record.NoteSize,
		"tick": record.HeaderSize + 64, "ask": record.HeaderSize + 100, "answer": record.HeaderSize + 1<<10, "datagram": record.HeaderSize + 200,
	}
	for name, frame := range frames {
		for _, ip := range []int{20, 40} {
			for _, header := range []int{udp, tcp, tcp + shortest, tcp + longest} {
				if length := ip + header + frame; sealed(length) == sealed(record.ProbePacket) {
					t.Errorf("%s: a packet of %d bytes, with %d of IP, looks like a prober's of %d", name, length, ip, record.ProbePacket)
				}
			}
		}
	}
}

// TestLinksLossIsTheirs sends packets through a real tunnel over a link in user space that
// loses some, by its queue and by chance: every one that does not arrive is the link's. What
// the host at the other end loses is not.
func TestLinksLossIsTheirs(t *testing.T) {
	for _, c := range []struct{ name, a, b string }{
		{"IPv4", "100.64.0.1", "100.64.0.2"},
		{"IPv6", "fd64::1", "fd64::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTunnelWorld(t, c.a, c.b)
			const sent, refused = 1500, 70
			w.send(t, 9, sent)
			missing, byLinks := int64(sent), int64(0)
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				got := w.lost(t)
				missing, byLinks = sent-w.arrived.Load(), got
				if missing == byLinks || time.Now().After(end) {
					break
				}
			}
			if missing != byLinks || byLinks < 20 {
				t.Errorf("%d did not arrive, of which %d are the link's", missing, byLinks)
			}
			w.set(t, wan.Link{})
			before := w.lost(t)
			w.send(t, 10, refused) // nobody has that port
			w.send(t, 9, 1)
			for end := time.Now().Add(10 * time.Second); w.arrived.Load() <= sent-missing && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
			}
			if w.lost(t) != before {
				t.Errorf("%d that the host lost are said to be the link's", w.lost(t)-before)
			}
		})
	}
}

// tunnelWorld is two hosts with a link and a tunnel between them, and a run that knows it.
type tunnelWorld struct {
	wan.Emulator
	a, b    string // namespaces
	ends    [2]*tunnel.Tunnel
	arrived atomic.Int64
	run
}

func newTunnelWorld(t *testing.T, a, b string) *tunnelWorld {
	t.Helper()
	need.Root(t)
	w := &tunnelWorld{a: fmt.Sprintf("t-loss-%d-a", os.Getpid()), b: fmt.Sprintf("t-loss-%d-b", os.Getpid())}
	for _, name := range []string{w.a, w.b} {
		if err := netns.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(name) })
	}
	var err error
	if w.Emulator, err = wan.StartUser(t.Context(), wan.End{Namespace: w.a, Device: "up0"}, wan.End{Namespace: w.b, Device: "up0"}, wan.Link{}, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	w.addresses(t, a, b)
	w.up(t, a, b)
	w.listen(t)
	w.quiet(t) // no echo of the trial is on its way any more
	w.set(t, wan.Link{Rate: 30e6, Delay: 5 * time.Millisecond, Loss: 0.02})
	return w
}

// quiet waits until nothing passes the link.
func (w *tunnelWorld) quiet(t *testing.T) {
	t.Helper()
	for last := uint64(0); ; time.Sleep(200 * time.Millisecond) {
		c, err := w.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if last == c.AB.Packets+c.BA.Packets {
			return
		}
		last = c.AB.Packets + c.BA.Packets
	}
}

func (w *tunnelWorld) set(t *testing.T, link wan.Link) {
	t.Helper()
	if err := w.Set(link); err != nil {
		t.Fatal(err)
	}
}

// addresses gives each end of the link its address.
func (w *tunnelWorld) addresses(t *testing.T, a, b string) {
	t.Helper()
	for name, text := range map[string]string{w.a: a, w.b: b} {
		err := netns.Do(name, func() error {
			dev, err := netlink.LinkByName("up0")
			if err != nil {
				return err
			}
			bits := 24
			if netip.MustParseAddr(text).Is6() {
				bits = 64
			}
			addr, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", text, bits))
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			return netlink.AddrAdd(dev, addr)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// up makes both ends of the tunnel and tries it; the run learns it.
func (w *tunnelWorld) up(t *testing.T, a, b string) {
	t.Helper()
	at := [2]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(a), 4001), netip.AddrPortFrom(netip.MustParseAddr(b), 4002)}
	var private [2]tunnel.Key
	for i := range private {
		var err error
		if private[i], _, err = tunnel.NewKey(); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{w.a, w.b} {
		dir, err := os.MkdirTemp("", "gwt")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		config := tunnel.Config{
			Name: "gwt0", Local: at[i], Remote: at[1-i], PrivateKey: private[i], PeerKey: private[1-i].PublicKey(),
			Dir: dir, Lease: time.Now().Add(time.Minute),
		}
		err = netns.Do(name, func() (err error) {
			// The tunnel's device has nothing to say of its own, such as who routes here.
			if err := netns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"); err != nil {
				return err
			}
			w.ends[i], err = tunnel.Up(t.Context(), config)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = netns.Do(name, func() error { return tunnel.Down(context.Background(), config.Dir, config.Name) })
		})
	}
	w.learn(api.GuestInfo{Name: "web", Tunnels: []api.GuestTunnel{{Kind: tunnel.WireGuard, Local: at[0], Remote: at[1]}}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := netns.Do(w.a, func() error { return w.ends[0].Verify(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// listen counts what arrives at the far end's port 9, with room for all of it.
func (w *tunnelWorld) listen(t *testing.T) {
	t.Helper()
	var conn net.PacketConn
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) })
		return errors.Join(cerr, err)
	}}
	err := netns.Do(w.b, func() (err error) {
		conn, err = config.ListenPacket(t.Context(), "udp4", netip.AddrPortFrom(w.ends[1].Inner, 9).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 2048)
		for {
			if _, _, err := conn.ReadFrom(buf); err != nil {
				return
			}
			w.arrived.Add(1)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
}

// send sends n packets of full size to a port of the far end: a little more than the link
// carries.
func (w *tunnelWorld) send(t *testing.T, port uint16, n int) {
	t.Helper()
	var conn net.PacketConn
	if err := netns.Do(w.a, func() (err error) {
		conn, err = net.ListenPacket("udp4", netip.AddrPortFrom(w.ends[0].Inner, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.ends[0].PeerInner, port))
	data := make([]byte, 1472)
	for i := range n {
		if _, err := conn.WriteTo(data, to); err != nil {
			t.Fatal(err)
		}
		if i%30 == 29 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// lost is what the run takes for the link's.
func (w *tunnelWorld) lost(t *testing.T) int64 {
	t.Helper()
	counters, err := w.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return w.lostByLinks("web", map[string]wan.Counters{"a/public": counters})
}
