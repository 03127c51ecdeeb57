package wan

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/netns"

	"github.com/vishvananda/netlink"
)

// world is two namespaces with a link between them.
type world struct {
	Emulator
	a, b  string
	addrs [2]netip.Addr
}

// eachKind runs a test with a link of each kind that this kernel can do, while no guest takes the processors.
func eachKind(t *testing.T, test func(t *testing.T, kind string)) {
	need.Lab(t)
	kinds := []string{"user"}
	if HaveNetem() {
		kinds = append(kinds, "netem")
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

// start makes a link of a kind; "" is the one that Start takes.
func start(ctx context.Context, kind string, a, b End, link Link) (Emulator, error) {
	switch kind {
	case "user":
		return StartUser(ctx, a, b, link, 1)
	case "netem":
		return StartNetem(ctx, a, b, link)
	}
	return Start(ctx, a, b, link, 1)
}

func newWorld(t *testing.T, kind string, link Link) *world {
	t.Helper()
	need.Root(t)
	w := &world{a: fmt.Sprintf("t-wan-%d-a", os.Getpid()), b: fmt.Sprintf("t-wan-%d-b", os.Getpid())}
	for _, name := range []string{w.a, w.b} {
		if err := netns.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(name) })
	}
	var err error
	w.Emulator, err = start(t.Context(), kind, End{w.a, "up0"}, End{w.b, "s0u0"}, link)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	w.addrs = [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	for i, end := range []End{{w.a, "up0"}, {w.b, "s0u0"}} {
		err := netns.Do(end.Namespace, func() error {
			dev, err := netlink.LinkByName(end.Device)
			if err != nil {
				return err
			}
			addr, _ := netlink.ParseAddr(w.addrs[i].String() + "/24")
			if err := netns.Sysctl("net.ipv4.tcp_rmem", "4096 131072 16777216"); err != nil {
				return err
			}
			if err := netns.Sysctl("net.ipv4.tcp_wmem", "4096 16384 16777216"); err != nil {
				return err
			}
			return netlink.AddrAdd(dev, addr)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// udp returns an echo server's conversation from a to b.
func (w *world) udp(t *testing.T) net.Conn {
	t.Helper()
	var server net.PacketConn
	var conn net.Conn
	if err := netns.Do(w.b, func() (err error) {
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(w.addrs[1], 7).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := netns.Do(w.a, func() (err error) {
		conn, err = net.Dial("udp", server.LocalAddr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(buf[:n], from)
		}
	}()
	t.Cleanup(func() { server.Close(); conn.Close(); <-done })
	return conn
}

// asked numbers pings: an answer may come when the next is asked.
var asked atomic.Uint32

// pings returns the fastest of n round trips and their median, and how many were answered.
func pings(t *testing.T, conn net.Conn, n int, patience time.Duration) (fastest, median time.Duration, answered int) {
	t.Helper()
	var all []time.Duration
	for range n {
		question, buf := binary.BigEndian.AppendUint32(make([]byte, 96), asked.Add(1)), make([]byte, 2048)
		start := time.Now()
		if _, err := conn.Write(question); err != nil {
			t.Fatal(err)
		}
		for p := need.Patient(patience); !p.Over(); {
			conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if got, err := conn.Read(buf); err == nil && bytes.Equal(buf[:got], question) {
				all = append(all, time.Since(start))
				break
			}
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return all[0], all[len(all)/2], len(all)
}

// bulk returns the IP rate in bit/s of a TCP connection from a to b, measured for d
// after a warm-up.
func (w *world) bulk(t *testing.T, warm, d time.Duration) float64 {
	t.Helper()
	var listener net.Listener
	config := net.ListenConfig{}
	config.SetMultipathTCP(false)
	if err := netns.Do(w.b, func() (err error) {
		listener, err = config.Listen(t.Context(), "tcp", netip.AddrPortFrom(w.addrs[1], 9).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var conn net.Conn
	if err := netns.Do(w.a, func() (err error) {
		conn, err = net.Dial("tcp", listener.Addr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<20)
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}()
	defer func() { conn.Close(); <-done }()
	buf := make([]byte, 1<<20)
	read := func(until time.Time) (n int) {
		peer.SetReadDeadline(until)
		for {
			m, err := peer.Read(buf)
			n += m
			if errors.Is(err, os.ErrDeadlineExceeded) || err == io.EOF {
				return n
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	read(time.Now().Add(warm))
	start := time.Now()
	n := read(start.Add(d))
	return float64(n) * 8 / time.Since(start).Seconds() * 1500 / 1448
}

// tries is how often something is measured until it is good enough: a machine that is busy
// with other tests makes a link slower, never faster.
const tries = 5

func TestLinkDelay(t *testing.T) { eachKind(t, testLinkDelay) }

func testLinkDelay(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{Delay: 10 * time.Millisecond})
	conn := w.udp(t)
	pings(t, conn, 3, time.Second)
	best := time.Hour
	for range tries {
		fastest, rtt, n := pings(t, conn, 40, 5*time.Second)
		if n != 40 || rtt < 20*time.Millisecond {
			t.Errorf("rtt %v of 20 ms, %d answers of 40", rtt, n)
		}
		if best = min(best, fastest); best <= 21*time.Millisecond {
			break
		}
	}
	if t.Logf("rtt %v of 20 ms", best); best > 21*time.Millisecond {
		t.Error("the link delays more than it was asked to")
	}
}

func TestLinkRate(t *testing.T) { eachKind(t, testLinkRate) }

func testLinkRate(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{})
	for _, rate := range []int64{100e6, 350e6} {
		t.Run(fmt.Sprintf("%d Mbit", rate/1e6), func(t *testing.T) {
			if err := w.Set(Link{Rate: rate, Delay: 5 * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			least, most := 0.95*float64(rate), 1.02*float64(rate)
			got := 0.0
			for try := 0; try < tries && (got < least || got > most); try++ { // what waited while this program did counts as more
				got = w.bulk(t, 500*time.Millisecond, time.Second)
				t.Logf("rate %.1f Mbit/s of %d", got/1e6, rate/1e6)
			}
			if got < least || got > most {
				t.Error("the link carries less, or more, than it was asked to")
			}
		})
	}
}

func TestLinkUnlimited(t *testing.T) { eachKind(t, testLinkUnlimited) }

func testLinkUnlimited(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{})
	best := 0.0
	for range tries {
		if best = max(best, w.bulk(t, 200*time.Millisecond, time.Second)); best >= 1000e6 {
			break
		}
	}
	if t.Logf("unlimited: %.0f Mbit/s", best/1e6); best < 1000e6 {
		t.Error("want at least 1000")
	}
}

func TestLinkCutAndRestore(t *testing.T) { eachKind(t, testLinkCutAndRestore) }

func testLinkCutAndRestore(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{Delay: time.Millisecond})
	conn := w.udp(t)
	for _, step := range []struct {
		cut  string
		want int
	}{{"", 5}, {"ab", 0}, {"", 5}, {"ba", 0}, {"both", 0}, {"", 5}} {
		if err := w.Set(Link{Delay: time.Millisecond, Cut: step.cut}); err != nil {
			t.Fatal(err)
		}
		patience := 60 * time.Millisecond
		if step.want > 0 {
			patience = 2 * time.Second
		}
		if _, _, n := pings(t, conn, 5, patience); n != step.want {
			t.Errorf("cut %q: %d answers of %d", step.cut, n, step.want)
		}
	}
	counters, err := w.Counters()
	if err != nil {
		t.Fatal(err)
	}
	// Cut "ba" carries the questions and loses the answers.
	if counters.BA.CutDrop < 5 || counters.AB.CutDrop < 10 || counters.AB.Packets < counters.BA.Packets+5 {
		t.Errorf("counters %+v", counters)
	}
	if counters.AB.DeviceDrop+counters.BA.DeviceDrop+counters.AB.QueueDrop+counters.AB.LossDrop != 0 {
		t.Errorf("unexpected drops: %+v", counters)
	}
}

func TestLinkRefusesNonsense(t *testing.T) { eachKind(t, testLinkRefusesNonsense) }

func testLinkRefusesNonsense(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{MTU: 1400})
	if err := w.Set(Link{Loss: 2}); err == nil {
		t.Error("loss of 2 was taken")
	}
	if err := w.Set(Link{MTU: 1300}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []End{{w.a, "up0"}, {w.b, "s0u0"}} {
		_ = netns.Do(end.Namespace, func() error {
			link, err := netlink.LinkByName(end.Device)
			if err != nil || link.Attrs().MTU != 1300 {
				t.Errorf("mtu of %s: %v %v", end.Device, link, err)
			}
			return nil
		})
	}
	if _, err := start(t.Context(), kind, End{w.a, "up0"}, End{w.b, "other"}, Link{}); err == nil {
		t.Error("a device name that is taken was taken again")
	}
	_ = netns.Do(w.b, func() error {
		if _, err := netlink.LinkByName("other"); err == nil {
			t.Error("a failed start left a device")
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := start(ctx, kind, End{w.a, "x0"}, End{w.b, "x0"}, Link{}); err == nil {
		t.Error("started with a cancelled context")
	}
}
