package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

func TestMain(m *testing.M) {
	child.Dispatch()
	os.Exit(m.Run())
}

// A path is hosts a and b with a router between.
type path struct{ *nettest.Net }

// pathNet is a path whose far link has a smaller MTU.
func pathNet(t *testing.T, others ...string) *path {
	n := &path{nettest.New(t, append([]string{"a", "r", "b"}, others...)...)}
	n.Wire("a", "up", "r", "ra")
	n.Wire("b", "up", "r", "rb")
	n.IP("a", "addr add 10.9.1.2/24 dev up\naddr add fd09:1::2/64 dev up nodad\nroute add default via 10.9.1.1\nroute add default via fd09:1::1")
	n.IP("b", "addr add 10.9.2.2/24 dev up\naddr add fd09:2::2/64 dev up nodad\nroute add default via 10.9.2.1\nroute add default via fd09:2::1")
	n.IP("r", "addr add 10.9.1.1/24 dev ra\naddr add fd09:1::1/64 dev ra nodad\naddr add 10.9.2.1/24 dev rb\naddr add fd09:2::1/64 dev rb nodad")
	n.Sysctl("r", "ipv6/conf/all/forwarding=1")
	n.mtu(1400)
	return n
}

// mtu sets what the far link carries; the near one never carries less than 1500.
func (n *path) mtu(far int) {
	for _, end := range [][2]string{{"b", "up"}, {"r", "rb"}} {
		n.IP(end[0], fmt.Sprintf("link set dev %s mtu %d", end[1], far))
	}
	for _, end := range [][2]string{{"a", "up"}, {"r", "ra"}} {
		n.IP(end[0], fmt.Sprintf("link set dev %s mtu %d", end[1], max(far, 1500)))
	}
}

// ends returns the configurations of both ends.
func ends(t *testing.T, kind, a, b string) [2]Config {
	var keys [2]wgtypes.Key
	for i := range keys {
		k, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = k
	}
	at := [2]netip.AddrPort{netip.MustParseAddrPort(a), netip.MustParseAddrPort(b)}
	var c [2]Config
	for i := range c {
		c[i] = Config{Name: "gwt0", Kind: kind, Local: at[i], Remote: at[1-i], PrivateKey: keys[i], PeerKey: keys[1-i].PublicKey(),
			Dir: shortDir(t), Lease: time.Now().Add(time.Minute)}
	}
	return c
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gwt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func up(t *testing.T, n *nettest.Net, name string, c Config) *Tunnel {
	t.Helper()
	var tun *Tunnel
	n.Do(name, func() (err error) { tun, err = Up(t.Context(), c); return err })
	t.Cleanup(func() {
		netns.Do(n.Name(name), func() error { return Down(context.Background(), c.Dir, c.Name) })
	})
	return tun
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
		for _, mtu := range []string{"1500", "1400", "1280"} {
			t.Run(ends4or6[0]+" over "+mtu, func(t *testing.T) {
				n.IP("b", "link set dev up mtu "+mtu)
				n.IP("r", "link set dev rb mtu "+mtu)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				n.Do("a", func() error { _, err := a.Verify(ctx); return err })
				t.Logf("TCP through it: %.0f Mbit/s", transfer(t, n.Net, "a", b.Inner, bulk/2))
			})
		}
	}
}

// transfer sends size bytes from a to an address of b, and returns Mbit/s.
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

// TestVerifyComesBehind: an echo comes behind all that the other end had sent before, however
// long the queues are: who has heard it need not wait for more.
func TestVerifyComesBehind(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	verify := func() { n.Do("a", func() error { _, err := a.Verify(ctx); return err }) }
	verify()
	n.Run("b", "tc", "qdisc", "add", "dev", "up", "root", "tbf", "rate", "2mbit", "burst", "4kb", "limit", "4mb")
	var in, out net.PacketConn
	n.Do("a", func() (err error) { in, err = net.ListenPacket("udp4", a.Inner.String()+":7009"); return err })
	defer in.Close()
	in.(*net.UDPConn).SetReadBuffer(4 << 20)
	n.Do("b", func() (err error) { out, err = net.ListenPacket("udp4", b.Inner.String()+":0"); return err })
	defer out.Close()
	const datagrams = 300 // 1.3 s
	send := func() {
		for range datagrams {
			if _, err := out.WriteTo(make([]byte, 1000), in.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
	}
	raw, err := in.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	count := func() (k int) { // what is there: a deadline may pass before the read has begun
		if err := raw.Read(func(fd uintptr) bool {
			for buf := make([]byte, 2000); ; k++ {
				if _, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT); err != nil {
					return true
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		return k
	}
	early, late := 0, 0
	for try := 0; try < 5 && late == 0; try++ { // a machine may stand still for as long as they are under way
		send()
		early = count()
		verify()
		if late = count(); early+late != datagrams {
			break
		}
	}
	if early+late != datagrams || late == 0 {
		t.Errorf("%d datagrams were there before the echo, %d with it; want %d in all, some of them late", early, late, datagrams)
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

// TestDroppedFragments: a path that drops fragments is named as such.
func TestDroppedFragments(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	a := up(t, n.Net, "a", cfg[0])
	up(t, n.Net, "b", cfg[1])
	n.Run("r", "nft", "add table ip t; add chain ip t f { type filter hook prerouting priority -500; }; add rule ip t f ip frag-off & 0x3fff != 0 drop")
	var err error
	for limit := time.Second; limit < 20*time.Second && !errors.Is(err, ErrOnlySmall); limit *= 2 { // in a second a busy machine may hear nothing
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = netns.Do(n.Name("a"), func() error { _, err := a.Verify(ctx); return err })
		cancel()
	}
	if !errors.Is(err, ErrOnlySmall) {
		t.Fatalf("got %v", err)
	}
}

// TestEnds: what ends a tunnel, and that nothing is left then.
func TestEnds(t *testing.T) {
	for _, kind := range []string{WireGuard, VXLAN} {
		for _, c := range []struct {
			name string
			end  func(*nettest.Net, *Tunnel) error
		}{
			{"told", func(n *nettest.Net, tun *Tunnel) error {
				return netns.Do(n.Name("a"), func() error { return Down(t.Context(), tun.dir, tun.Name) })
			}},
			{"its lease", func(_ *nettest.Net, tun *Tunnel) error {
				return tun.Extend(t.Context(), time.Now().Add(200*time.Millisecond))
			}},
			{"its device deleted", func(n *nettest.Net, tun *Tunnel) error {
				n.IP("a", "link del "+tun.Name)
				return nil
			}},
			{"SIGTERM", func(_ *nettest.Net, tun *Tunnel) error {
				return exec.Command("kill", strconv.Itoa(tun.PID)).Run()
			}},
		} {
			t.Run(kind+" by "+c.name, func(t *testing.T) {
				n := pathNet(t)
				tun := up(t, n.Net, "a", ends(t, kind, "10.9.1.2:4789", "10.9.2.2:4789")[0])
				if err := c.end(n.Net, tun); err != nil {
					t.Fatal(err)
				}
				nettest.Eventually(t, "process and device gone", 3*time.Second, func() bool {
					_, err := os.Stat("/proc/" + strconv.Itoa(tun.PID))
					_, link := n.Try("a", "ip", "link", "show", tun.Name)
					return err != nil && link != nil
				})
				left, _ := filepath.Glob(filepath.Join(tun.dir, "*"))
				for _, f := range left {
					if !strings.HasSuffix(f, ".log") {
						t.Errorf("left: %s", f)
					}
				}
			})
		}
	}
}

// TestOutlivesAndFound: the tunnel lives on when its parent was killed, is found
// again, lengthened, and taken down; after a kill of its own, Down cleans up.
func TestOutlivesAndFound(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	tun := up(t, n.Net, "a", cfg[0])
	if tun.PID == os.Getpid() || sessionOf(t, tun.PID) != tun.PID {
		t.Fatalf("the tunnel's process %d has no session of its own", tun.PID)
	}
	again := up(t, n.Net, "a", cfg[0])
	if again.PID != tun.PID {
		t.Fatal("a second Up started a second process")
	}
	other := cfg[0]
	other.Remote = netip.MustParseAddrPort("10.9.2.3:51820")
	if err := netns.Do(n.Name("a"), func() error { _, err := Up(t.Context(), other); return err }); err == nil {
		t.Error("Up with another remote took the running one over")
	}
	var found []Status
	n.Do("a", func() (err error) { found, err = Found(t.Context(), cfg[0].Dir); return err })
	if len(found) != 1 || !found[0].Alive || found[0].Name != "gwt0" || found[0].Remote != cfg[0].Remote {
		t.Fatalf("found %+v", found)
	}
	exec.Command("kill", "-9", strconv.Itoa(tun.PID)).Run()
	nettest.Eventually(t, "killed", 5*time.Second, func() bool { return tun.Refresh(t.Context()) != nil })
	n.Do("a", func() (err error) { found, err = Found(t.Context(), cfg[0].Dir); return err })
	if len(found) != 1 || found[0].Alive {
		t.Fatalf("found %+v after the kill", found)
	}
	n.Do("a", func() error { return Down(t.Context(), cfg[0].Dir, "gwt0") })
	n.Do("a", func() (err error) { found, err = Found(t.Context(), cfg[0].Dir); return err })
	if left, _ := os.ReadDir(cfg[0].Dir); len(found) != 0 || len(left) != 0 {
		t.Fatalf("left %+v %v", found, left)
	}
}

// TestUpBesideOneThatIsStopped: a tunnel that does not answer for a while keeps its socket and its log.
func TestUpBesideOneThatIsStopped(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")[0]
	tun := up(t, n.Net, "a", cfg)
	need.Stop(t, tun.PID)
	err := netns.Do(n.Name("a"), func() error { _, err := Up(t.Context(), cfg); return err })
	if err := syscall.Kill(tun.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("a second one came up")
	}
	again, err := Attach(t.Context(), cfg.Dir, cfg.Name)
	if err != nil || again.PID != tun.PID {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := os.Stat(cfg.log()); err != nil {
		t.Error(err)
	}
}

func sessionOf(t *testing.T, pid int) int {
	out, err := exec.Command("ps", "-o", "sid=", "-p", strconv.Itoa(pid)).Output()
	sid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return sid
}

// TestInnerAddrs: both ends derive the same pair, of link-local addresses that nobody else is known to have.
func TestInnerAddrs(t *testing.T) {
	clouds := netip.MustParsePrefix("169.254.169.0/24")
	for port := range 20000 {
		a, b := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1024+port)), netip.MustParseAddrPort("192.0.2.2:4789")
		own, peer := InnerAddrs(a, b)
		peer2, own2 := InnerAddrs(b, a)
		if own != own2 || peer != peer2 || own == peer || !own.IsLinkLocalUnicast() || !peer.IsLinkLocalUnicast() || own.As4()[2] == 0 || own.As4()[2] == 255 || clouds.Contains(own) {
			t.Fatalf("%s and %s: %s, %s; from the other end %s, %s", a, b, own, peer, own2, peer2)
		}
	}
}

func TestBadConfig(t *testing.T) {
	good := ends(t, WireGuard, "10.9.1.2:1", "10.9.2.2:1")[0]
	for name, c := range map[string]func(*Config){
		"no name": func(c *Config) { c.Name = "" }, "kind": func(c *Config) { c.Kind = "geneve" },
		"families": func(c *Config) { c.Remote = netip.MustParseAddrPort("[::1]:1") }, "no key": func(c *Config) { c.PeerKey = wgtypes.Key{} },
		"lease passed": func(c *Config) { c.Lease = time.Now().Add(-time.Second) }, "mtu": func(c *Config) { c.MTU = 100 },
		"no port": func(c *Config) { c.Local = netip.MustParseAddrPort("10.9.1.2:0") },
	} {
		bad := good
		c(&bad)
		if err := bad.complete(time.Now()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestWhatFitsIsOnePacket: of a guest's packets that fit into the path none goes in fragments, also over IPv6, where the sender
// cuts.
func TestWhatFitsIsOnePacket(t *testing.T) {
	n := pathNet(t)
	n.mtu(1500)
	for i, ends4or6 := range [][2]string{{"10.9.1.2:51820", "10.9.2.2:51820"}, {"[fd09:1::2]:51821", "[fd09:2::2]:51821"}} {
		cfg := ends(t, WireGuard, ends4or6[0], ends4or6[1])
		for k := range cfg {
			cfg[k].Name = fmt.Sprintf("gwt%d", i)
		}
		a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		n.Do("a", func() error { _, err := a.Verify(ctx); return err })
		cancel()
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

// burst is more changes of a host's links than a process that does not listen meanwhile can take in.
func burst(n *nettest.Net, at string) {
	n.Run(at, "sh", "-c", "seq 3000 | sed 's/^/link set dev up alias /' | ip -batch -")
}

// TestManyLinkChanges: a process that has missed changes of the host's links keeps its tunnel while it has a device,
// and ends where it has none.
func TestManyLinkChanges(t *testing.T) {
	n := pathNet(t)
	for _, kind := range []string{WireGuard, VXLAN} {
		t.Run(kind, func(t *testing.T) {
			cfg := ends(t, kind, "10.9.1.2:51820", "10.9.2.2:51820")
			for i := range cfg {
				cfg[i].MTU = 1300 // VXLAN does not fragment what is larger than the path
			}
			a, _ := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
			verify := func(a *Tunnel) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				n.Do("a", func() error { _, err := a.Verify(ctx); return err })
			}
			verify(a)
			stopped := func(what func()) {
				need.Stop(t, a.PID)
				what()
				if err := syscall.Kill(a.PID, syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			stopped(func() { burst(n.Net, "a") })
			time.Sleep(300 * time.Millisecond)
			verify(a)
			stopped(func() { burst(n.Net, "a"); n.IP("a", "link del gwt0") })
			ended(t, a.PID)
			verify(up(t, n.Net, "a", cfg[0]))
		})
	}
}

// ended waits for a tunnel's process to be gone.
func ended(t *testing.T, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := vanish(ctx, pid, ""); err != nil {
		t.Error(err)
	}
}

// TestUpAgainWithoutDevice: a process that lives without its device is no tunnel.
func TestUpAgainWithoutDevice(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, VXLAN, "10.9.1.2:51820", "10.9.2.2:51820")
	cfg[0].MTU, cfg[1].MTU = 1300, 1300
	a, _ := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	need.Stop(t, a.PID)
	n.IP("a", "link del gwt0")
	go func() { // it answers again while it is asked, and before it has heard
		time.Sleep(100 * time.Millisecond)
		syscall.Kill(a.PID, syscall.SIGCONT)
	}()
	again := up(t, n.Net, "a", cfg[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.Do("a", func() error { _, err := again.Verify(ctx); return err })
}

// TestUpCancelled: who gives up leaves nothing, whenever that is.
func TestUpCancelled(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, VXLAN, "10.9.1.2:51820", "10.9.2.2:51820")[0]
	cfg.MTU = 1300
	cancelled, took := 0, time.Duration(0) // took: the last that was let finish, for a machine's pace changes
	for i := range 41 {
		limit := time.Minute // the first finishes
		if i > 0 {
			limit = took * time.Duration(i%10) / 10
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		n.Do("a", func() error {
			began := time.Now()
			if _, err := Up(ctx, cfg); err == nil {
				took = time.Since(began)
				return Down(t.Context(), cfg.Dir, cfg.Name)
			}
			cancelled++
			if left, err := Found(t.Context(), cfg.Dir); err != nil || len(left) > 0 {
				t.Errorf("after %v: left %+v, %v", limit, left, err)
				return Down(t.Context(), cfg.Dir, cfg.Name)
			}
			return nil
		})
		cancel()
	}
	if cancelled < 10 {
		t.Errorf("cancelled %d times of 41", cancelled)
	}
}
