package address

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"

	"github.com/vishvananda/netlink"
)

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		name                  string
		connections, now, our int
		want                  int
	}{
		{"a few", 10, 1, 0, 1},
		{"a thousand", 1000, 1, 0, 5},
		{"more than it may be", 100000, 1, 0, 8},
		{"a crowd that is gone", 10, 5, 5, 1},
		{"a larger one", 1500, 5, 5, 7},
		{"somebody chose the default", 1000, 120, 0, 120},
		{"somebody chose it since", 1000, 60, 9, 60},
		{"somebody chose less", 1000, 2, 0, 5},
	} {
		if got := patience(c.connections, c.now, c.our); got != c.want {
			t.Errorf("%s: %d s, want %d", c.name, got, c.want)
		}
	}
}

func TestLastAnswers(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{0: 0, 40 * time.Millisecond: 80 * time.Millisecond, time.Minute: time.Second} {
		if got := lastAnswers(rtt); got != want {
			t.Errorf("an RTT of %v: %v, want %v", rtt, got, want)
		}
	}
}

// TestCrowdSetsTheTimeout: what an earlier crowd has left is set back.
func TestCrowdSetsTheTimeout(t *testing.T) {
	need.Root(t)
	if err := os.WriteFile(announceTimeout, []byte("9"), 0o644); err != nil {
		t.Fatal(err)
	}
	book := &Book{waits: 9}
	book.crowd()
	book.receivers.Restore()
	has, err := os.ReadFile(announceTimeout)
	if err != nil || strings.TrimSpace(string(has)) != strconv.Itoa(leastTimeout) || book.waits != leastTimeout {
		t.Errorf("%q (%v), and remembered %d", has, err, book.waits)
	}
}

func onLoopback(t *testing.T, prefixes ...string) {
	t.Helper()
	need.Root(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, p := range prefixes {
		if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(p))}); err != nil {
			t.Fatal(err)
		}
	}
}

// pair is a connection over loopback.
func pair(t *testing.T, addr string, multipath bool) (client, server net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(multipath)
	listener, err := listening.Listen(context.Background(), "tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var dialer net.Dialer
	dialer.SetMultipathTCP(multipath)
	if client, err = dialer.Dial("tcp4", net.JoinHostPort(addr, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestLastSegmentsAreAwaited: an address that goes while a peer has not said its last leaves
// that peer to send it again and again, into nothing.
func TestLastSegmentsAreAwaited(t *testing.T) {
	onLoopback(t, "10.9.7.1/32")
	for tries := 1; ; tries++ {
		client, server := pair(t, "10.9.7.1", false)
		server.Close()
		var said atomic.Bool
		closed := make(chan time.Duration, 1)
		go func() {
			begun := time.Now()
			time.Sleep(closeLimit / 4)
			took := time.Since(begun)
			said.Store(true)
			client.Close()
			closed <- took
		}()
		err := awaitGone([]netip.Addr{netip.MustParseAddr("10.9.7.1")})
		before := !said.Load()
		took := <-closed
		if err != nil || before && (took < closeLimit/2 || tries == 9) { // else the machine stood still meanwhile
			t.Errorf("the address may go, and a peer had still to close, in %v: %v", took, err)
		} else if before {
			continue
		}
		return
	}
}

// TestSilentPeersAreNotAwaitedForEver: the wait ends by itself.
func TestSilentPeersAreNotAwaitedForEver(t *testing.T) {
	onLoopback(t, "10.9.7.2/32")
	_, server := pair(t, "10.9.7.2", false)
	server.Close()
	ended := make(chan error, 1)
	go func() { ended <- awaitGone([]netip.Addr{netip.MustParseAddr("10.9.7.2")}) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * closeMost):
		t.Error("still waiting")
	}
}

// removed is how many addresses peers in this namespace were told to forget.
func removed(t *testing.T) int {
	t.Helper()
	content, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "MPTcpExt:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "RmAddr" {
				n, err := strconv.Atoi(words[i])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Skip("the kernel does not count withdrawn addresses: no RmAddr in netstat")
	return 0
}

// TestWithdrawnOnce: a guest's connections are told once that the address is gone that they
// began on, though it is retired first and dropped later.
func TestWithdrawnOnce(t *testing.T) {
	onLoopback(t, "10.9.7.3/32", "10.9.7.4/32")
	first, next := netip.MustParseAddr("10.9.7.3"), netip.MustParseAddr("10.9.7.4")
	if err := mptcp.SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	client, server := pair(t, first.String(), true)
	for _, c := range [][2]net.Conn{{client, server}, {server, client}} {
		if _, err := c[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := c[1].Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 9, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mptcp.DelEndpoint(9, next) })
	if !joins(t, next.String(), 10*time.Second) {
		t.Fatal("nobody joined")
	}
	if rtt, err := noneBound([]netip.Addr{first}); err != nil || lastAnswers(rtt) <= rtt || rtt == 0 {
		t.Errorf("the slowest subflow there has an RTT of %v, and its peer's answers are awaited for %v: %v", rtt, lastAnswers(rtt), err)
	}
	book, before := &Book{}, removed(t)
	var told []int
	for range 2 {
		if err := book.withdrawFirst([]netip.Addr{first}); err != nil {
			t.Fatal(err)
		}
		if err := awaitGone([]netip.Addr{first}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); removed(t) == before && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond) // for another that comes late
		told = append(told, removed(t)-before)
	}
	if told[0] == 0 || told[1] != told[0] { // both ends are here, and are told
		t.Errorf("told %d times, and then %d in all", told[0], told[1])
	}
}

// TestSocketsOfBothFamilies: most servers listen at [::], for clients of IPv4 as well.
func TestSocketsOfBothFamilies(t *testing.T) {
	onLoopback(t, "10.9.7.9/32")
	listener, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const clients = 10
	before := sockets()
	for range clients {
		client, err := net.Dial("tcp4", net.JoinHostPort("10.9.7.9", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
	}
	if n := sockets() - before; n < 2*clients {
		t.Errorf("%d sockets of %d connections", n, clients)
	}
}
