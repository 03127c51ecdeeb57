package hold_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/hold"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

func TestMain(m *testing.M) {
	child.Dispatch()
	os.Exit(m.Run())
}

const guest = "10.7.0.5"

// host makes host h with a bridge, a tap that nobody reads and a route of the
// guest's address to it.
func host(t *testing.T) (*nettest.Net, *os.File) {
	n := nettest.New(t, "h", "p")
	n.Run("h", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6") // or it speaks by itself
	// A bridge that snoops joins 224.0.0.106 (RFC 4286) and says so at a random time.
	n.IP("h", "link add br0 type bridge mcast_snooping 0\nlink set br0 up\naddr add 10.7.0.1/24 dev br0")
	var tap *os.File
	n.Do("h", func() (err error) { tap, err = netstate.OpenTap("t1a", 1000, "br0", 1500); return err })
	t.Cleanup(func() { tap.Close() })
	n.IP("h", "neigh replace "+guest+" dev br0 nud permanent lladdr 52:54:00:00:01:0a")
	control(t, tap, func(fd int) { // as QEMU does
		if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, 12); err != nil {
			t.Fatal(err)
		}
		const checksumAndUSO = 0x01 | 0x20 | 0x40 // TUN_F_CSUM, TUN_F_USO4, TUN_F_USO6
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, checksumAndUSO); err != nil {
			t.Log("no UDP segmentation offload here:", err)
			unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 1)
		}
	})
	time.Sleep(50 * time.Millisecond)
	if _, err := hold.ReadLeft(tap); err != nil { // what coming up made
		t.Fatal(err)
	}
	return n, tap
}

// hostBefore is a host whose packets to 10.8.0.2 go into tap t2a, which has room for 400 and is empty.
func hostBefore(t *testing.T) (*nettest.Net, *os.File) {
	t.Helper()
	n, _ := host(t)
	var via *os.File
	n.Do("h", func() (err error) { via, err = netstate.OpenTap("t2a", 400, "br0", 1500); return err })
	t.Cleanup(func() { via.Close() })
	n.IP("h", "neigh replace 10.8.0.2 dev t2a nud permanent lladdr 02:00:00:00:00:02")
	if _, err := hold.ReadLeft(via); err != nil {
		t.Fatal(err)
	}
	return n, via
}

func control(t *testing.T, f *os.File, do func(fd int)) {
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { do(int(fd)) })
}

// send sends count numbered datagrams to the guest, segment bytes each, as
// super-packets of three if there are more than one segment.
func send(t *testing.T, n *nettest.Net, count int) {
	var conn net.Conn
	n.Do("h", func() (err error) { conn, err = net.Dial("udp", guest+":9"); return err })
	defer conn.Close()
	raw, _ := conn.(*net.UDPConn).SyscallConn()
	raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000) })
	for i := 0; i < count; i += 3 {
		b := make([]byte, 3000)
		for j := range 3 {
			binary.BigEndian.PutUint32(b[1000*j:], uint32(i+j))
		}
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResend: what a queue held arrives through the tunnel, every datagram once,
// with good checksums, super-packets too; the descriptor's flags are as before.
func TestResend(t *testing.T) {
	for _, kind := range []string{tunnel.WireGuard, tunnel.VXLAN} {
		t.Run(kind, func(t *testing.T) {
			n, tap := host(t)
			join(t, n, kind)
			n.IP("p", "addr add "+guest+"/32 dev lo")
			var conn net.PacketConn
			n.Do("p", func() (err error) { conn, err = net.ListenPacket("udp4", guest+":9"); return err })
			defer conn.Close()
			var q *hold.Queue
			n.Do("h", func() (err error) { q, err = hold.Watch("t1a"); return err })
			defer q.Close()
			var before, after int
			control(t, tap, func(fd int) { before, _ = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) })
			send(t, n, 60)
			check := func(want uint64) {
				n.Do("h", func() error {
					waiting, refused, err := q.Frames()
					if waiting != want || refused != 0 {
						t.Errorf("%d frames wait, %d refused; want %d", waiting, refused, want)
					}
					return err
				})
			}
			n.Do("h", func() error {
				if waiting, _, err := q.Frames(); waiting != 20 && waiting != 60 {
					t.Errorf("%d frames wait, %v", waiting, err)
				}
				return nil
			})
			frames, err := hold.ReadLeft(tap)
			if err != nil || (len(frames) != 20 && len(frames) != 60) {
				for _, f := range frames {
					t.Logf("%d bytes: % x", len(f), f[:min(len(f), 60)])
				}
				t.Fatalf("read %d frames, %v", len(frames), err)
			}
			t.Logf("%d frames held 60 datagrams", len(frames))
			check(0)
			control(t, tap, func(fd int) { after, _ = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) })
			if before != after {
				t.Errorf("flags of the tap were %#x and are %#x", before, after)
			}
			frames = append(frames, make([]byte, 60), []byte("short")) // no IP: skipped
			n.Do("h", func() error {
				sent, err := hold.Resend(frames, "gw0")
				if sent != len(frames)-2 {
					t.Errorf("sent %d of %d", sent, len(frames)-2)
				}
				return err
			})
			seen := map[uint32]int{}
			buf := make([]byte, 2048)
			for p := need.Patient(time.Second); len(seen) < 60 && !p.Over(); {
				conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				size, _, err := conn.ReadFrom(buf)
				if err != nil {
					continue
				}
				if size != 1000 {
					t.Errorf("a datagram of %d bytes", size)
				}
				seen[binary.BigEndian.Uint32(buf)]++
			}
			for i := range uint32(60) {
				if seen[i] != 1 {
					t.Errorf("datagram %d came %d times", i, seen[i])
				}
			}
		})
	}
}

// numbered are count frames of UDP, each with its number as its last four bytes.
func numbered(count int) [][]byte {
	frames := make([][]byte, count)
	for i := range frames {
		f := make([]byte, hold.HeaderLen+14+20+8+4)
		copy(f[hold.HeaderLen:], []byte{0x52, 0x54, 0, 0, 1, 0xa, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17})
		binary.BigEndian.PutUint32(f[len(f)-4:], uint32(i))
		frames[i] = f
	}
	return frames
}

// TestResendWaitsForASlowReader: a queue that is far shorter than what is sent loses nothing, and
// one that nobody reads is not sent into for long.
func TestResendWaitsForASlowReader(t *testing.T) {
	n, via := hostBefore(t)
	const count = 20000
	n.Do("h", func() error {
		begun := time.Now()
		if sent, err := hold.Resend(numbered(count), "t2a"); err == nil || sent > 400 || time.Since(begun) > 30*time.Second {
			t.Errorf("nobody reads: sent %d, %v, after %v", sent, err, time.Since(begun))
		}
		return nil
	})
	if _, err := hold.ReadLeft(via); err != nil {
		t.Fatal(err)
	}
	seen, all, done := map[uint32]bool{}, make(chan struct{}), make(chan struct{})
	stop := all
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		var late <-chan time.Time // when nothing more is waited for
		for i := 0; len(seen) < count; i++ {
			size, err := 0, error(nil)
			control(t, via, func(fd int) { size, err = unix.Preadv2(fd, [][]byte{buf}, -1, unix.RWF_NOWAIT) })
			if size > 4 && err == nil {
				seen[binary.BigEndian.Uint32(buf[size-4:])] = true
			}
			if i%50 == 0 || size <= 0 {
				select {
				case <-stop: // all were sent: the last may still be in the device's queue
					stop, late = nil, time.After(5*time.Second)
				case <-late:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}
	}()
	n.Do("h", func() error {
		sent, err := hold.Resend(numbered(count), "t2a")
		if sent != count {
			t.Errorf("sent %d of %d", sent, count)
		}
		return err
	})
	close(all)
	<-done
	if len(seen) < count {
		t.Errorf("%d of %d came", len(seen), count)
	}
}

// join connects h and p by a tunnel gw0.
func join(t *testing.T, n *nettest.Net, kind string) {
	n.Wire("h", "up0", "p", "up0")
	n.IP("h", "addr add 10.6.0.1/24 dev up0")
	n.IP("p", "addr add 10.6.0.2/24 dev up0\nroute add default via 10.6.0.1")
	at := [2]netip.AddrPort{netip.MustParseAddrPort("10.6.0.1:4789"), netip.MustParseAddrPort("10.6.0.2:4789")}
	var keys [2]wgtypes.Key
	for i := range keys {
		keys[i], _ = wgtypes.GeneratePrivateKey()
	}
	var first *tunnel.Tunnel
	for i, ns := range []string{"h", "p"} {
		dir, err := os.MkdirTemp("", "gwh")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		n.Do(ns, func() error {
			tun, err := tunnel.Up(t.Context(), tunnel.Config{Name: "gw0", Kind: kind, Local: at[i], Remote: at[1-i], PrivateKey: keys[i],
				PeerKey: keys[1-i].PublicKey(), Dir: dir, Lease: time.Now().Add(time.Minute)})
			if i == 0 {
				first = tun
			}
			return err
		})
		t.Cleanup(func() { netns.Do(n.Name(ns), func() error { return tunnel.Down(context.Background(), dir, "gw0") }) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.Do("h", func() error { return first.Verify(ctx) })
}

// TestDrained: it waits for a slow reader, not for one who does not read.
func TestDrained(t *testing.T) {
	n, tap := host(t)
	if err := hold.Drained(t.Context(), tap, 5*time.Millisecond, time.Second); err != nil {
		t.Fatal("an empty queue:", err)
	}
	send(t, n, 30)
	start := time.Now()
	if err := hold.Drained(t.Context(), tap, 5*time.Millisecond, 50*time.Millisecond); err == nil {
		t.Error("frames wait, nobody reads, and it is drained")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := hold.Drained(ctx, tap, 5*time.Millisecond, time.Minute); err == nil || time.Since(start) > 20*time.Second {
		t.Error("cancelled:", err)
	}
	copied, err := hold.Recover(os.Getpid(), "t1a")
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	read := make(chan struct{})
	go func() { // a guest that takes one frame per 5 ms
		defer close(read)
		buf := make([]byte, 70000)
		for i := 0; ; i++ {
			time.Sleep(5 * time.Millisecond)
			n, err := 0, error(nil)
			control(t, copied, func(fd int) { n, err = unix.Preadv2(fd, [][]byte{buf}, -1, unix.RWF_NOWAIT) })
			if n <= 0 || err != nil {
				return
			}
		}
	}()
	if err := hold.Drained(t.Context(), tap, 15*time.Millisecond, 5*time.Second); err != nil {
		t.Error(err)
	}
	if frames, err := hold.ReadLeft(tap); len(frames) != 0 || err != nil {
		t.Errorf("drained, but %d frames are left, %v", len(frames), err)
	}
	<-read
	if _, err := hold.Recover(os.Getpid(), "t9z"); err == nil {
		t.Error("recovered a tap that is not there")
	}
}

// TestMark: a mark waits behind what waits, is not sent on, and a reader takes it as any
// other.
func TestMark(t *testing.T) {
	n, tap := host(t)
	send(t, n, 3)
	n.Do("h", func() error { return hold.Mark("t1a") })
	frames, err := hold.ReadLeft(tap)
	if err != nil || len(frames) < 2 {
		t.Fatalf("%d frames, %v", len(frames), err)
	}
	if last := frames[len(frames)-1]; binary.BigEndian.Uint16(last[hold.HeaderLen+12:]) != 0x88b5 {
		t.Errorf("the last frame is % x", last)
	}
	n.IP("h", "link add out0 type veth peer name in0\nlink set out0 up\nlink set in0 up\nneigh add 10.8.0.2 dev out0 lladdr 02:00:00:00:00:02 nud permanent")
	n.Do("h", func() error {
		sent, err := hold.Resend(frames, "out0")
		if sent != len(frames)-1 {
			t.Errorf("sent %d of %d", sent, len(frames))
		}
		return err
	})
	if err := hold.Drained(t.Context(), tap, 0, time.Second); err != nil {
		t.Error("it was read:", err)
	}
	n.Do("h", func() error {
		if err := hold.Mark("t9z"); err == nil {
			t.Error("marked a tap that is not there")
		}
		return hold.Mark("t1a")
	})
	if err := hold.Drained(t.Context(), tap, 0, 20*time.Millisecond); err == nil {
		t.Error("nobody has read the mark, and it is drained")
	}
}

// TestSpoken counts what a guest sends, from the watch on.
func TestSpoken(t *testing.T) {
	n, tap := host(t)
	frame := make([]byte, 12+60) // behind a virtio_net_hdr
	copy(frame[12:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0, 1, 0xa, 0x88, 0xb5})
	speak := func(times int) {
		for range times {
			if _, err := tap.Write(frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	speak(2)
	var q *hold.Queue
	n.Do("h", func() (err error) { q, err = hold.Watch("t1a"); return err })
	defer q.Close()
	speak(3)
	send(t, n, 3) // to the guest, which does not count
	n.Do("h", func() error {
		spoken, err := q.Spoken()
		if spoken != 3 {
			t.Errorf("%d frames were sent, not 3", spoken)
		}
		return err
	})
}

// TestFull: a full queue refuses, and says so.
func TestFull(t *testing.T) {
	n, _ := host(t)
	var q *hold.Queue
	n.Do("h", func() (err error) { q, err = hold.Watch("t1a"); return err })
	defer q.Close()
	for range 15 {
		send(t, n, 300)
	}
	n.Do("h", func() error {
		waiting, refused, err := q.Frames()
		if waiting < 990 || waiting > 1000 || refused == 0 {
			t.Errorf("%d wait, %d refused", waiting, refused)
		}
		return err
	})
}
