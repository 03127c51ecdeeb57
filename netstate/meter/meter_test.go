package meter

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/internal/nettest"
)

// chain is a – r – b, where a sends super-packets and r cuts them: what b's device
// counts is what is on the wire. Nothing but the test's packets is on it.
func chain(t *testing.T) *nettest.Net {
	n := nettest.New(t, "a", "r", "b")
	n.Wire("a", "eth0", "r", "ra")
	n.Wire("b", "eth0", "r", "rb")
	n.IP("r", "link set dev rb gso_max_segs 1\naddr add 10.8.1.1/24 dev ra\naddr add fd08:1::1/64 dev ra nodad\naddr add 10.8.2.1/24 dev rb\naddr add fd08:2::1/64 dev rb nodad")
	n.Sysctl("r", "ipv6/conf/all/forwarding=1")
	n.IP("b", "link set dev eth0 gso_max_segs 1") // its acknowledgements carry nothing anyway
	n.IP("a", "addr add 10.8.1.2/24 dev eth0\naddr add fd08:1::2/64 dev eth0 nodad\nroute add default via 10.8.1.1\nroute add default via fd08:1::1")
	n.IP("b", "addr add 10.8.2.2/24 dev eth0\naddr add fd08:2::2/64 dev eth0 nodad\nroute add default via 10.8.2.1\nroute add default via fd08:2::1")
	return n
}

func open(t *testing.T, n *nettest.Net, ns, dev string) *Meter {
	t.Helper()
	var m *Meter
	n.Do(ns, func() (err error) { m, err = Open(dev); return err })
	t.Cleanup(func() { m.Close() })
	return m
}

// of returns the packets between two ports' protocol, in one direction.
func of(t *testing.T, m *Meter, out bool, dst string, proto uint8) Count {
	t.Helper()
	c, err := m.Sum(func(k Key) bool { return k.Out == out && k.Dst == netip.MustParseAddr(dst) && k.Proto == proto })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rx is how many packets b's device has received.
func rx(n *nettest.Net) uint64 {
	packets, _ := strconv.ParseUint(strings.TrimSpace(n.Run("b", "cat", "/sys/class/net/eth0/statistics/rx_packets")), 10, 64)
	return packets
}

// TestSegments: TCP and UDP super-packets count as the packets that they become,
// to the packet and to the byte, where they are made, where they pass and where
// they have been cut.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		name, dst string
		proto     uint8
		send      func(*testing.T, *nettest.Net, string)
	}{
		{"TCP over IPv4", "10.8.2.2", unix.IPPROTO_TCP, sendTCP},
		{"TCP over IPv6", "fd08:2::2", unix.IPPROTO_TCP, sendTCP},
		{"UDP over IPv4", "10.8.2.2", unix.IPPROTO_UDP, sendUDP},
		{"UDP over IPv6", "fd08:2::2", unix.IPPROTO_UDP, sendUDP},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := chain(t)
			reached(t, n, c.dst)
			before := rx(n)
			made, passed, cut := open(t, n, "a", "eth0"), open(t, n, "r", "ra"), open(t, n, "b", "eth0")
			opened := rx(n)
			c.send(t, n, c.dst)
			var a, r, b Count
			for p := need.Patient(5 * time.Second); !p.Over() && (b.Packets == 0 || a.Packets != b.Packets); {
				settle()
				a, r, b = of(t, made, true, c.dst, c.proto), of(t, passed, false, c.dst, c.proto), of(t, cut, false, c.dst, c.proto)
			}
			sent := rx(n)
			t.Logf("%d packets, %d bytes; made as %d frames", b.Packets, b.Bytes, a.Frames)
			if a.Frames >= a.Packets {
				t.Error("no super-packets were made: the test shows nothing")
			}
			if b.Frames != b.Packets {
				t.Error("super-packets arrived at b: its counters are no measure")
			}
			if a.Packets != b.Packets || a.Bytes != b.Bytes || r.Packets != b.Packets || r.Bytes != b.Bytes {
				t.Errorf("a counts %+v, r %+v, b %+v", a, r, b)
			}
			all, err := cut.Sum(func(k Key) bool { return !k.Out })
			after := rx(n) // IPv6 says things of its own, at any time
			if all.Frames < sent-opened || all.Frames > after-before || err != nil {
				t.Errorf("b's device counts %d to %d packets, the meter %+v, %v", sent-opened, after-before, all, err)
			}
		})
	}
}

func sendTCP(t *testing.T, n *nettest.Net, dst string) {
	var l net.Listener
	n.Do("b", func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(dst, "0")); return err })
	defer l.Close()
	done := make(chan int64)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			close(done)
			return
		}
		got, _ := io.Copy(io.Discard, conn)
		conn.Close()
		done <- got
	}()
	var conn net.Conn
	n.Do("a", func() (err error) { conn, err = net.Dial("tcp", l.Addr().String()); return err })
	for i := range 400 { // odd sizes
		if _, err := conn.Write(make([]byte, 1+i*997%60000)); err != nil {
			t.Fatal(err)
		}
	}
	conn.(*net.TCPConn).CloseWrite()
	<-done
	io.Copy(io.Discard, conn)
	conn.Close()
}

// reached has everybody between a and b know the next: packets that wait for a neighbour are few.
func reached(t *testing.T, n *nettest.Net, dst string) {
	t.Helper()
	var conn net.Conn
	n.Do("a", func() (err error) { conn, err = net.Dial("udp", net.JoinHostPort(dst, "9")); return err })
	defer conn.Close()
	nettest.Eventually(t, dst+" answers", 5*time.Second, func() bool {
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) //nolint:errcheck // it has one
		conn.Write([]byte{0})                                        //nolint:errcheck // seen by the next
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, unix.ECONNREFUSED)
	})
}

func sendUDP(t *testing.T, n *nettest.Net, dst string) {
	var conn net.Conn
	n.Do("a", func() (err error) { conn, err = net.Dial("udp", net.JoinHostPort(dst, "9")); return err })
	defer conn.Close()
	raw, _ := conn.(*net.UDPConn).SyscallConn()
	raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1200) })
	for i := range 50 {
		conn.Write(make([]byte, 1201+i*997%50000))
	}
}

// TestKinds: fragments, a device without Ethernet, and directions.
func TestKinds(t *testing.T) {
	n := chain(t)
	reached(t, n, "10.8.2.2")
	cut := open(t, n, "b", "eth0")
	n.Do("a", func() error {
		conn, err := net.Dial("udp", "10.8.2.2:9")
		if err == nil {
			_, err = conn.Write(make([]byte, 4000)) // 4028 bytes of IP: 1500 + 1500 + 1068
		}
		return err
	})
	nettest.Eventually(t, "all fragments come", 5*time.Second, func() bool { return of(t, cut, false, "10.8.2.2", unix.IPPROTO_UDP).Packets >= 3 })
	if c := of(t, cut, false, "10.8.2.2", unix.IPPROTO_UDP); c.Packets != 3 || c.Bytes != 4008+3*20 {
		t.Errorf("fragments of 4008 bytes: %+v", c)
	}
	var tun *os.File
	n.Do("a", func() (err error) { tun, err = openTun("tun0"); return err })
	defer tun.Close()
	n.IP("a", "link set dev tun0 up\naddr add 10.8.9.1/24 dev tun0")
	m := open(t, n, "a", "tun0")
	n.Do("a", func() error {
		conn, err := net.Dial("udp", "10.8.9.2:53")
		if err == nil {
			_, err = conn.Write(make([]byte, 100))
		}
		return err
	})
	packet := append([]byte{0x45, 0, 0, 48, 0, 0, 0, 0, 64, 17, 0, 0, 10, 8, 9, 2, 10, 8, 9, 1, 0, 7, 0, 99, 0, 28, 0, 0}, make([]byte, 20)...)
	tun.Write(packet)
	tun.Write([]byte{0x45, 0, 0, 200}) // shorter than it says, and than a header
	own, peer := netip.MustParseAddr("10.8.9.1"), netip.MustParseAddr("10.8.9.2")
	out, in := Key{Out: true, Src: own, Dst: peer, Proto: 17, Port: 53}, Key{Src: peer, Dst: own, Proto: 17, Port: 99}
	var counts map[Key]Count
	nettest.Eventually(t, "packets of the tun", 5*time.Second, func() bool {
		var err error
		if counts, err = m.Read(); err != nil {
			t.Fatal(err)
		}
		return counts[out].Packets > 0 && counts[in].Packets > 0
	})
	if c := counts[out]; c != (Count{1, 128, 1}) {
		t.Errorf("out of the tun: %+v in %v", c, counts)
	}
	if c := counts[in]; c != (Count{1, 48, 1}) {
		t.Errorf("into the tun: %+v in %v", c, counts)
	}
}

func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	return os.NewFile(uintptr(fd), name), unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
}

// TestManyFlows: more flows than the map has room for are counted all the same.
func TestManyFlows(t *testing.T) {
	n := chain(t)
	reached(t, n, "10.8.1.1")
	m := open(t, n, "a", "eth0")
	const flows = maxKeys + 500
	n.Do("a", func() error {
		conn, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for i := range flows {
			conn.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(netip.MustParseAddr("10.8.1.1"), uint16(i+1)))
		}
		return nil
	})
	settle()
	counts, err := m.Read()
	sum := uint64(0)
	for k, c := range counts {
		if k.Out {
			sum += c.Packets
		}
	}
	sum += counts[Rest].Packets
	if err != nil || sum < flows || counts[Rest].Packets == 0 {
		t.Errorf("%d flows: counted %d, %d of them together, %v", flows, sum, counts[Rest].Packets, err)
	}
}

// TestRecent: a meter that runs for long counts what comes last, each flow by itself.
func TestRecent(t *testing.T) {
	n := chain(t)
	reached(t, n, "10.8.1.1")
	var m *Meter
	n.Do("a", func() (err error) { m, err = OpenRecent("eth0"); return err })
	defer m.Close()
	const rounds, again = 4 * recentKeys, 20
	last := netip.AddrPortFrom(netip.MustParseAddr("10.8.1.1"), 65000)
	n.Do("a", func() error {
		conn, err := net.ListenUDP("udp4", nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		for i := range rounds {
			conn.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(last.Addr(), uint16(i+1)))
		}
		for range again {
			conn.WriteToUDPAddrPort([]byte("x"), last)
		}
		return nil
	})
	settle()
	counts, err := m.Read()
	found := uint64(0)
	for k, c := range counts {
		if k.Out && k.Port == last.Port() {
			found = c.Packets
		}
	}
	if err != nil || found != again || len(counts) > recentKeys || counts[Rest].Packets > 0 {
		t.Errorf("the last of %d flows has %d of %d packets, %d flows are known, %d packets of none, %v", rounds, found, again, len(counts), counts[Rest].Packets, err)
	}
}

func TestNoDevice(t *testing.T) {
	n := nettest.New(t, "a")
	n.Do("a", func() error {
		if _, err := Open("nodev"); err == nil {
			return fmt.Errorf("opened a meter on nothing")
		}
		return nil
	})
}

// settle lets the last packets come through.
func settle() { time.Sleep(100 * time.Millisecond) }
