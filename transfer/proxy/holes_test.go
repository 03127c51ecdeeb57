package proxy_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/transfer/proxy"
)

// hole is a way to the destination that passes on what comes until it is shut. From then on it
// accepts, and reads nothing more.
type hole struct {
	addr string
	shut chan struct{}
	end  chan struct{}
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	h := &hole{shut: make(chan struct{}), end: make(chan struct{})}
	h.addr = answering(t, func(conn net.Conn) {
		select {
		case <-h.shut:
			<-h.end
			conn.Close()
			return
		default:
		}
		on, err := net.Dial("tcp", to)
		if err != nil {
			conn.Close()
			return
		}
		var passing sync.WaitGroup
		defer passing.Wait()
		passing.Go(func() {
			<-h.end
			conn.Close()
			on.Close()
		})
		passing.Go(func() { h.pass(on, conn) })
		h.pass(conn, on)
	}).String()
	t.Cleanup(func() { close(h.end) }) // before who serves is waited for
	return h
}

// pass copies until the hole is shut, and then reads no more.
func (h *hole) pass(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-h.shut:
			<-h.end
			return
		default:
		}
		if n > 0 {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}

// route sends an uplink's connections through somewhere else, from now on.
func (u *uplink) route(via string) {
	u.mu.Lock()
	u.via = via
	u.mu.Unlock()
	u.set(true) // those that there are
	u.set(false)
}

// TestPathThatDeliversNothing has one path that accepts and reads nothing from the beginning, and
// one that does so in the middle, with frames on it: the third carries all.
func TestPathThatDeliversNothing(t *testing.T) {
	p := newPair(t, writing)
	l := p.link("never", "for a while", "good")
	never, later := newHole(t, l.addr), newHole(t, l.addr)
	close(never.shut)
	l.uplinks[0].route(never.addr)
	l.uplinks[1].route(later.addr)
	p.until(l, "the other two", func(s proxy.Stats) bool { return s.LanesLive == 2 })
	l.limit.Set(12 << 20)
	p.migrate(l)
	p.until(l, "both carry", func(s proxy.Stats) bool { return s.Paths[1].Acked > 1<<20 && s.Paths[2].Acked > 1<<20 })
	close(later.shut)
	p.until(l, "rounds", func(s proxy.Stats) bool { return s.Round >= 3 && s.Repeated > 0 })
	if s := l.src.Stats(); s.Paths[0].Acked > 0 || s.Paths[1].Died == 0 {
		t.Errorf("%+v", s.Stats)
	}
	p.finish(l)
}

// TestNothingIsDelivered has no other path: nothing comes, which its owner sees, and gives it up.
func TestNothingIsDelivered(t *testing.T) {
	p := newPair(t, writing)
	l := p.link("a", "b")
	h := newHole(t, l.addr)
	l.uplinks[0].route(h.addr)
	l.uplinks[1].route(h.addr)
	p.copying(l)
	close(h.shut)
	p.until(l, "no lane", func(s proxy.Stats) bool { return s.LanesLive == 0 })
	if heard := l.src.Stats().Heard; time.Since(heard) < time.Second {
		t.Errorf("something was heard %v ago", time.Since(heard))
	}
	p.runsOn()
	go l.src.Close() //nolint:errcheck // looked at by breaks
	go l.dst.Close()
	p.breaks(l, "closed", "closed")
	l = p.link("a")
	p.migrate(l)
	p.until(l, "a round", func(s proxy.Stats) bool { return s.Round >= 2 })
	p.finish(l)
}

// TestPathAppears begins on one path; another, that did not work when the copy began, carries
// its part as soon as it does.
func TestPathAppears(t *testing.T) {
	p := newPair(t, writing)
	l := p.link("there", "not yet")
	l.uplinks[1].set(true)
	l.limit.Set(6 << 20)
	p.until(l, "one lane", func(s proxy.Stats) bool { return s.LanesLive == 1 && s.Paths[1].Lanes == 0 })
	p.migrate(l)
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Paths[0].Acked > 4<<20 })
	if s := l.src.Stats(); s.Paths[1].Acked > 0 {
		t.Errorf("it carried something: %+v", s.Paths)
	}
	l.uplinks[1].set(false)
	p.until(l, "the other path", func(s proxy.Stats) bool { return s.Paths[1].Acked > 1<<20 })
	p.finish(l)
}

// smallDisk is a directory with room for so much.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	need.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) //nolint:errcheck // the directory is removed next
	return dir
}

// TestDiskFull: the destination's copy of memory finds no room, or in the stop phase the source's
// queue does not.
func TestDiskFull(t *testing.T) {
	const full = "no space left on device"
	p := newPair(t, writing)
	l := p.linkWith(proxy.DestinationConfig{Mirror: smallDisk(t, "4m")}, proxy.SourceConfig{Buffer: 32 << 20}, "a", "b")
	l.limit.Set(8 << 20)
	p.migrate(l)
	p.breaks(l, full, full)

	l = p.linkWith(proxy.DestinationConfig{Mirror: p.Dir}, proxy.SourceConfig{Buffer: 1 << 20, Spill: smallDisk(t, "1m")}, "a", "b")
	l.limit.Set(1 << 20)
	p.migrate(l)
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 1<<20 })
	l.src.Hurry()
	if err := p.Src.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	go p.Src.ReleaseSwitchover(t.Context()) //nolint:errcheck // there may be nothing to release any more
	select {
	case <-l.src.Done():
	case <-time.After(20 * time.Second):
		t.Fatalf("it goes on: %+v", l.src.Stats())
	}
	if _, err := p.Src.AwaitMigration(t.Context()); err == nil {
		t.Fatal("it has moved")
	}
	if err := p.Src.Cont(t.Context()); err != nil { // whoever stops it lets it run again
		t.Fatal(err)
	}
	p.breaks(l, full, full)
	l = p.link("a")
	p.migrate(l)
	p.until(l, "a round", func(s proxy.Stats) bool { return s.Round >= 2 })
	p.finish(l)
}
