package tunnel

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate/netns"
)

// TestVerifyComesBehind: an echo comes behind all that the other end had sent before, however
// long the queues are: who has heard it need not wait for more.
func TestVerifyComesBehind(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51820")
	a, b := up(t, n.Net, "a", cfg[0]), up(t, n.Net, "b", cfg[1])
	n.verify(t, a)
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
		n.verify(t, a)
		if late = count(); early+late != datagrams {
			break
		}
	}
	if early+late != datagrams || late == 0 {
		t.Errorf("%d datagrams were there before the echo, %d with it; want %d in all, some of them late", early, late, datagrams)
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
		err = netns.Do(n.Name("a"), func() error { return a.Verify(ctx) })
		cancel()
	}
	if !errors.Is(err, ErrOnlySmall) {
		t.Fatalf("got %v", err)
	}
}
