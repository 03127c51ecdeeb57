package wan

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestLargeSendsThroughARouter: sends of one segment and more come over a fast link, which
// carries them whole, and are cut for a slow one behind it; in the other direction too. None is
// lost. A link that cannot cut loses every one of the five; a probe of TCP's, sent when a busy
// machine let an acknowledgement wait, is no loss: no link counts a drop for it.
func TestLargeSendsThroughARouter(t *testing.T) { eachKind(t, testLargeSendsThroughARouter) }

func testLargeSendsThroughARouter(t *testing.T, kind string) {
	need.Program(t, "ip")
	name := func(s string) string { return fmt.Sprintf("t-wan-%d-%s", os.Getpid(), s) }
	const sends = 5
	links := chain(t, kind, name)
	for _, way := range [][2]string{{"a", "10.8.2.1"}, {"b", "10.8.1.1"}} {
		conn := drained(t, name(way[0]), name(map[string]string{"a": "b", "b": "a"}[way[0]]), way[1])
		for segments := 1; segments <= 8; segments++ {
			before := sentAgain(t, conn)
			for range sends {
				if _, err := conn.Write(make([]byte, segments*1448)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(25 * time.Millisecond)
			}
			if n := sentAgain(t, conn) - before; n >= sends {
				t.Errorf("from %s, %d sends of %d segments: %d packets sent again", way[0], sends, segments, n)
			}
		}
	}
	for i, l := range links {
		c, err := l.Counters()
		if err != nil || c.AB.Drops()+c.BA.Drops() > 0 {
			t.Errorf("link %d: %+v, %v", i, c, err)
		}
	}
}

// chain is a — fast — m — slow — b, where m is a router.
func chain(t *testing.T, kind string, name func(string) string) (links []Emulator) {
	t.Helper()
	for _, s := range []string{"a", "m", "b"} {
		if err := netns.Create(name(s)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(name(s)) })
	}
	for i, link := range []Link{{Rate: 300e6, Delay: 5 * time.Millisecond}, {Rate: 20e6, Delay: 5 * time.Millisecond}} {
		ends := [][2]End{{{name("a"), "up0"}, {name("m"), "s0"}}, {{name("m"), "s1"}, {name("b"), "up0"}}}[i]
		l, err := start(t.Context(), kind, ends[0], ends[1], link)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		links = append(links, l)
	}
	for s, script := range map[string]string{
		"a": "ip addr add 10.8.1.1/24 dev up0; ip route add 10.8.2.0/24 via 10.8.1.2",
		"m": "ip addr add 10.8.1.2/24 dev s0; ip addr add 10.8.2.2/24 dev s1; echo 1 >/proc/sys/net/ipv4/ip_forward",
		"b": "ip addr add 10.8.2.1/24 dev up0; ip route add 10.8.1.0/24 via 10.8.2.2",
	} {
		if out, err := exec.Command("ip", "netns", "exec", name(s), "sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	return links
}

// drained is a connection to an address whose other end reads all.
func drained(t *testing.T, from, to, address string) *net.TCPConn {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	err := netns.Do(to, func() (err error) {
		listener, err = net.Listen("tcp", address+":5001")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if c, err := listener.Accept(); err == nil {
			io.Copy(io.Discard, c) //nolint:errcheck // the sender counts
			c.Close()
		}
	}()
	err = netns.Do(from, func() (err error) {
		conn, err = net.Dial("tcp", address+":5001")
		return err
	})
	t.Cleanup(func() {
		if conn != nil {
			conn.Close()
		}
		listener.Close()
		<-over
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// sentAgain is how many packets a connection has retransmitted.
func sentAgain(t *testing.T, conn *net.TCPConn) (n uint32) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
