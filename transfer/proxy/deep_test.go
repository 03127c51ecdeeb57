package proxy_test

import (
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/transfer/proxy"
)

// TestQueuesAreDeepInTheFirstRound: what is sent once may wait in the kernel, what is written again may not for so long.
func TestQueuesAreDeepInTheFirstRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	f := newFakesOver(t, 1<<30, proxy.DestinationConfig{}, proxy.SourceConfig{})
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	deepest := func() (most int) {
		for _, u := range f.uplinks {
			u.mu.Lock()
			for _, conn := range u.open {
				most = max(most, lowWater(t, conn))
			}
			u.mu.Unlock()
		}
		return most
	}
	write := func(page uint64) {
		f.from.write(t, rng, page)
		if err := f.from.w.EndPart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // it is sent
	}
	const between = 4 << 20
	for page := uint64(0); deepest() < between; page++ {
		if write(page); page == fakePages-1 {
			t.Fatalf("%d bytes in the first round", deepest())
		}
	}
	for n := range 2000 {
		if write(uint64(n % 2)); deepest() < between {
			f.switchOver(t)
			return
		}
	}
	t.Fatalf("%d bytes in later rounds", deepest())
}

// lowWater is how much the kernel has of a connection that it has not sent, bytes.
func lowWater(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // 0 then
		n, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
	})
	return n
}
