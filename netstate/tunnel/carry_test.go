package tunnel

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// TestFullSize: packets of 1500 bytes with DF pass inside, echo and TCP, each kind, over IPv4
// and IPv6: over a path of 1400 where the kind fragments, and where not over one that they fit
// on. What this kernel lacks is refused, or done in user space.
func TestFullSize(t *testing.T) {
	for _, c := range []struct{ name, kind, a, b string }{
		{"wireguard over IPv4", WireGuard, "10.9.1.2:51820", "10.9.2.2:51821"},
		{"wireguard over IPv6", WireGuard, "[fd09:1::2]:51820", "[fd09:2::2]:51820"},
		{"vxlan over IPv4", VXLAN, "10.9.1.2:4789", "10.9.2.2:4789"},
		{"vxlan over IPv6", VXLAN, "[fd09:1::2]:4789", "[fd09:2::2]:4789"},
		{"gre over IPv4", GRE, "10.9.1.2:1", "10.9.2.2:2"},
		{"gre over IPv6", GRE, "[fd09:1::2]:1", "[fd09:2::2]:2"},
		{"ipip over IPv4", IPIP, "10.9.1.2:1", "10.9.2.2:2"},
		{"ipip over IPv6", IPIP, "[fd09:1::2]:1", "[fd09:2::2]:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := pathNet(t)
			cfg := ends(t, c.kind, c.a, c.b)
			outer6 := cfg[0].Local.Addr().Is6()
			refused := func(why string) {
				err := netns.Do(n.Name("a"), func() error { _, err := Up(t.Context(), cfg[0]); return err })
				if err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("got %v, want %q", err, why)
				}
			}
			if !Fragments(c.kind, outer6) {
				refused("cannot be fragmented")
				n.mtu(1600)
			}
			has := kernelHas(n.Net, "r", c.kind, outer6)
			if !has && c.kind != WireGuard {
				refused("load the module")
				return
			}
			t.Run(map[bool]string{true: "kernel", false: "user space"}[has], func(t *testing.T) { carriesFull(t, n, cfg, has) })
		})
	}
}

// bulk is how much is sent through a tunnel, bytes: thousands of packets.
const bulk = 3 << 20

func carriesFull(t *testing.T, n *path, cfg [2]Config, kernel bool) {
	a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	if a.Inner != b.PeerInner || a.PeerInner != b.Inner {
		t.Fatalf("inner addresses %s→%s and %s→%s do not meet", a.Inner, a.PeerInner, b.Inner, b.PeerInner)
	}
	if a.Kernel != kernel {
		t.Errorf("status says that the kernel carries it: %t, want %t", a.Kernel, kernel)
	}
	n.Do("a", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return a.Verify(ctx)
	})
	t.Logf("TCP through it: %.0f Mbit/s", transfer(t, n.Net, "a", b.Inner, bulk))
	if err := a.Refresh(t.Context()); err != nil || a.TxBytes < bulk {
		t.Errorf("status says %d bytes sent, %v", a.TxBytes, err)
	}
	inner6 := [2]netip.Addr{netip.MustParseAddr("fd0a::1"), netip.MustParseAddr("fd0a::2")}
	if !Carries(cfg[0].Kind, cfg[0].Local.Addr().Is6(), inner6[0]) {
		return
	}
	for i, h := range []string{"a", "b"} {
		n.IP(h, "addr add "+inner6[i].String()+"/128 dev gwt0 nodad\nroute add "+inner6[1-i].String()+" dev gwt0")
	}
	t.Logf("TCP over IPv6 through it: %.0f Mbit/s", transfer(t, n.Net, "a", inner6[1], 1<<20))
}

// TestForwardsFull: packets that fill a VXLAN are handed on whole for another machine, in both families. It once heard
// "packet too big" of those of IPv6, which its open connections did not outlive.
func TestForwardsFull(t *testing.T) {
	n := pathNet(t, "guest")
	if !kernelHas(n.Net, "r", VXLAN, false) {
		t.Skip("this kernel has no VXLAN; lab/kerneltest has one that does")
	}
	cfg := ends(t, VXLAN, "10.9.1.2:4789", "10.9.2.2:4789")
	n.Wire("guest", "eth0", "a", "lan")
	n.IP("guest", "addr add 10.8.1.2/24 dev eth0\naddr add fd08:1::2/64 dev eth0 nodad\nroute add default via 10.8.1.1\nroute add default via fd08:1::1")
	n.IP("a", "addr add 10.8.1.1/24 dev lan\naddr add fd08:1::1/64 dev lan nodad")
	n.Run("a", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
	a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	for host, toward := range map[string]struct {
		c        Config
		far      netip.Addr
		net, via string
	}{"a": {cfg[0], a.PeerInner, "10.8.2", "fd08:2::"}, "b": {cfg[1], b.PeerInner, "10.8.1", "fd08:1::"}} {
		_, _, _, far6 := toward.c.linkNames()
		n.IP(host, fmt.Sprintf("route add %s.0/24 via %s dev gwt0 onlink\nroute add %s/64 via %s dev gwt0 onlink", toward.net, toward.far, toward.via, far6))
	}
	n.IP("b", "addr add 10.8.2.1/32 dev gwt0\naddr add fd08:2::1/128 dev gwt0 nodad")
	for _, to := range []string{"10.8.2.1", "fd08:2::1"} {
		t.Logf("TCP to %s: %.0f Mbit/s", to, transfer(t, n.Net, "guest", netip.MustParseAddr(to), bulk))
		if route := n.Run("guest", "ip", "route", "get", to); strings.Contains(route, " mtu ") {
			t.Errorf("the guest heard that its packets to %s are too big: %s", to, route)
		}
	}
}

// kernelHas says whether this kernel has a kind of tunnel: whether ip(8) can make one.
func kernelHas(n *nettest.Net, in, kind string, outer6 bool) bool {
	name, _ := kernelKind(kind, outer6)
	more := map[string]string{"vxlan": "id 9 dstport 9", "gre": "local 192.0.2.1 remote 192.0.2.2", "ipip": "local 192.0.2.1 remote 192.0.2.2",
		"ip6gre": "local 2001:db8::1 remote 2001:db8::2", "ip6tnl": "local 2001:db8::1 remote 2001:db8::2"}[name]
	_, err := n.Try(in, "ip", append([]string{"link", "add", "trial", "type", name}, strings.Fields(more)...)...)
	if err == nil {
		n.IP(in, "link del trial")
	}
	return err == nil
}

// TestLeavesByLocal: a tunnel's packets have its own address outside, though the route to the
// other end prefers another; and its port is its own, though another address has it in use.
func TestLeavesByLocal(t *testing.T) {
	for _, c := range []struct{ name, a, b, route, taken string }{
		{"route of IPv4", "10.9.1.7:51820", "10.9.2.2:51820", "default via 10.9.1.1 src 10.9.1.2", "127.0.0.1:9"},
		{"route of IPv6", "[fd09:1::7]:51820", "[fd09:2::2]:51820", "default via fd09:1::1 src fd09:1::2", "127.0.0.1:9"},
		{"port", "10.9.1.7:51820", "10.9.2.2:51820", "default via 10.9.1.1 src 10.9.1.7", "127.0.0.1:51820"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := pathNet(t)
			n.IP("a", "addr add 10.9.1.7/24 dev up\naddr add fd09:1::7/64 dev up nodad\nroute replace "+c.route)
			n.Run("r", "nft", "add table inet t; add chain inet t f { type filter hook prerouting priority 0; }; add rule inet t f ip saddr 10.9.1.2 drop; add rule inet t f ip6 saddr fd09:1::2 drop")
			cfg := ends(t, WireGuard, c.a, c.b)
			var taken net.PacketConn
			n.Do("a", func() (err error) { taken, err = net.ListenPacket("udp", c.taken); return err })
			defer taken.Close()
			a := up(t, n.Net, "a", cfg[0])
			up(t, n.Net, "b", cfg[1])
			n.verify(t, a)
		})
	}
}

// TestJumbo: a guest's packets of 9000 bytes with DF pass, whatever the path's MTU is.
func TestJumbo(t *testing.T) {
	n := pathNet(t)
	for i, ends4or6 := range [][2]string{{"10.9.1.2:51820", "10.9.2.2:51820"}, {"[fd09:1::2]:51821", "[fd09:2::2]:51821"}} {
		cfg := ends(t, WireGuard, ends4or6[0], ends4or6[1])
		for k := range cfg {
			cfg[k].MTU, cfg[k].Name = 9000, fmt.Sprintf("gwt%d", i)
		}
		a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
		for _, mtu := range []int{1500, 1400, 1280} {
			t.Run(fmt.Sprintf("%s over %d", ends4or6[0], mtu), func(t *testing.T) {
				n.mtu(mtu)
				n.verify(t, a)
				t.Logf("TCP through it: %.0f Mbit/s", transfer(t, n.Net, "a", b.Inner, bulk/2))
			})
		}
	}
}

// TestWhatFitsIsOnePacket: of a guest's packets that fit into the path none goes in fragments, also over IPv6, where
// the sender cuts.
func TestWhatFitsIsOnePacket(t *testing.T) {
	n := pathNet(t)
	n.mtu(1500)
	for i, ends4or6 := range [][2]string{{"10.9.1.2:51820", "10.9.2.2:51820"}, {"[fd09:1::2]:51821", "[fd09:2::2]:51821"}} {
		cfg := ends(t, WireGuard, ends4or6[0], ends4or6[1])
		for k := range cfg {
			cfg[k].Name = fmt.Sprintf("gwt%d", i)
		}
		a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
		n.verify(t, a)
		const datagrams, fits = 50, 1500 - 80 - 12 // what WireGuard adds, and its padding
		packets := func() int {
			sent, err := strconv.Atoi(strings.TrimSpace(n.Run("r", "cat", "/sys/class/net/rb/statistics/tx_packets")))
			if err != nil {
				t.Fatal(err)
			}
			return sent
		}
		before := packets()
		var conn net.Conn
		n.Do("a", func() (err error) { conn, err = net.Dial("udp", netip.AddrPortFrom(b.Inner, 9).String()); return err })
		for range datagrams {
			conn.Write(make([]byte, fits-28)) // nobody listens, and that is told some time
			time.Sleep(2 * time.Millisecond)
		}
		conn.Close()
		if sent := packets() - before; sent < datagrams/2 || sent > datagrams+datagrams/5 {
			t.Errorf("over %s: %d packets of %d bytes are %d outside", ends4or6[0], datagrams, fits, sent)
		}
	}
}

// TestSilent: a tunnel carries nothing of its own, on hosts that route IPv6 either: what a kernel
// says of itself on a new link starts handshakes at both ends, which cross.
func TestSilent(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	var tuns []*Tunnel
	for i, host := range []string{"a", "b"} {
		n.Sysctl(host, "ipv6/conf/all/forwarding=1")
		tuns = append(tuns, up(t, n.Net, host, cfg[i]))
		if got := strings.TrimSpace(n.Run(host, "cat", "/proc/sys/net/ipv6/conf/"+cfg[i].Name+"/forwarding")); got != "1" {
			t.Errorf("host %s: forwarding of IPv6 is %s on the tunnel: want it as it was", host, got)
		}
	}
	time.Sleep(3 * time.Second) // routers are asked for, and groups reported again, within that
	for i, host := range []string{"a", "b"} {
		n.Do(host, func() error { return tuns[i].Refresh(t.Context()) })
		if tuns[i].TxBytes != 0 {
			t.Errorf("host %s: %d bytes sent with nobody using the tunnel", host, tuns[i].TxBytes)
		}
	}
}

// transfer sends size bytes over TCP from a host to an address of b, and returns Mbit/s.
func transfer(t *testing.T, n *nettest.Net, from string, to netip.Addr, size int64) float64 {
	t.Helper()
	var l net.Listener
	n.Do("b", func() (err error) { l, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String()); return err })
	defer l.Close()
	done := make(chan int64, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer conn.Close()
		got, _ := io.Copy(io.Discard, conn)
		done <- got
	}()
	var conn net.Conn
	n.Do(from, func() (err error) { conn, err = net.DialTimeout("tcp", l.Addr().String(), 5*time.Second); return err })
	start := time.Now()
	conn.SetDeadline(start.Add(30 * time.Second))
	if _, err := io.CopyN(conn, zero{}, size); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if got := <-done; got != size {
		t.Fatalf("%d of %d bytes came", got, size)
	}
	return float64(size) * 8 / 1e6 / time.Since(start).Seconds()
}

type zero struct{}

func (zero) Read(b []byte) (int, error) { return len(b), nil }
