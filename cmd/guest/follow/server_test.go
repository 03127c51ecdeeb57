package follow

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

// elsewhere makes a client in a namespace of its own, on a wire to two addresses of ours.
func elsewhere(t *testing.T) (client string) {
	t.Helper()
	return wired(t, "t-follow", "srv0", `
ip addr add 10.9.4.1/24 dev srv0; ip addr add 10.9.4.2/24 dev srv0; ip link set srv0 up
ip -n CLIENT addr add 10.9.4.9/24 dev c0; ip -n CLIENT link set c0 up`)
}

// wired makes a client in a namespace, whose c0 is on a wire to our dev; script sets both up, and has CLIENT for the
// namespace.
func wired(t *testing.T, name, dev, script string) (client string) {
	t.Helper()
	need.Root(t)
	need.Program(t, "ip")
	client = fmt.Sprintf("%s-%d", name, os.Getpid())
	if err := netns.Create(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", dev).Run()
		_ = netns.Delete(client)
	})
	script = strings.ReplaceAll("ip link add "+dev+" type veth peer name c0 netns CLIENT"+script, "CLIENT", client)
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := netns.Do(client, func() error { return mptcp.SetLimits(8, 8) }); err != nil {
		t.Fatal(err)
	}
	return client
}

// TestServersThatTakeNoMore: the join to the next address is refused where the server listens
// on the old one alone, or on none any more, until the address is announced with a port of
// its own. Without the old address the connection goes on.
func TestServersThatTakeNoMore(t *testing.T) {
	setUp(t)
	client := elsewhere(t)
	first, next := netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")
	for name, closes := range map[string]bool{"of one address": false, "that closed its listener": true} {
		t.Run(name, func(t *testing.T) {
			near, far := talk(t, client, first.String(), first, closes)
			if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
				t.Fatal(err)
			}
			joins, err := Await(t.Context(), awaitOf(next, first, 5, 6, 7), new(Stayed), new(Moves), func(int, int) {})
			if err != nil || joins.Joined != 1 || len(joins.Endpoints) == 0 {
				t.Fatalf("%+v, %v: want that announcing again reached it", joins, err)
			}
			if err := mptcp.DelEndpoint(0, first); err != nil {
				t.Fatal(err)
			}
			echo(t, near, far)
			for _, id := range append(joins.Endpoints, 3) {
				if err := mptcp.DelEndpoint(id, next); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// talk makes an MPTCP connection from the client to addr, where a server listens; closes: no
// more once the connection is there.
func talk(t *testing.T, client, listens string, addr netip.Addr, closes bool) (near, far net.Conn) {
	t.Helper()
	network := "tcp4"
	if addr.Is6() {
		network = "tcp" // of both families
	}
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	listener, err := listening.Listen(context.Background(), network, listens+":0")
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	dialer.SetMultipathTCP(true)
	if err := netns.Do(client, func() (err error) {
		near, err = dialer.Dial(network, netip.AddrPortFrom(addr, listener.Addr().(*net.TCPAddr).AddrPort().Port()).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = far.(*net.TCPConn).SetLinger(0)
		_ = near.(*net.TCPConn).SetLinger(0)
		far.Close()
		near.Close()
		listener.Close()
	})
	if closes {
		listener.Close()
	}
	echo(t, near, far)
	return near, far
}

// echo sends a byte each way.
func echo(t *testing.T, near, far net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		if _, err := pair[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := pair[1].SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPendingJoinIsSeen: a join whose handshake is not over counts as one that is coming.
func TestPendingJoinIsSeen(t *testing.T) {
	need.Program(t, "nft")
	setUp(t)
	client := elsewhere(t)
	first, next := netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")
	talk(t, client, "0.0.0.0", first, false)
	if err := netns.Do(client, func() error {
		out, err := exec.Command("nft", "table ip deaf { chain in { type filter hook input priority 0; ip saddr 10.9.4.2 drop; }; }").CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
	w := &watch{params: awaitOf(next, first), moves: new(Moves), joined: map[uint32]bool{}, ended: map[uint32]bool{}}
	for end := time.Now().Add(5 * time.Second); w.pending == 0; time.Sleep(20 * time.Millisecond) {
		if err := w.list(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d behind, and no join is seen to be under way", len(w.behind))
		}
	}
	if len(w.behind) != 1 || len(w.joined) != 0 {
		t.Errorf("%d behind, %d joined", len(w.behind), len(w.joined))
	}
}
