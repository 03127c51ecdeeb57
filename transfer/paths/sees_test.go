package paths

import (
	"net"
	"testing"
	"time"
)

// TestSees: when something last arrived, or nothing was to be brought, and by how much longer than a round trip that
// lately did not grow: a lane that was idle for long, or whose other end has no room, has not lagged, so that its path
// is found soon where it is cut then.
func TestSees(t *testing.T) {
	const rtt, size = 20 * time.Millisecond, 4096
	now, asks := time.Unix(1000, 0), 0
	var w onWay
	l := &lane{estimate: estimate{rtt: rtt}}
	l.kernel = kernelAsked(func() (onWay, bool) { asks++; return w, true }, now)
	for i, c := range []struct {
		after time.Duration
		wrote uint64
		is    onWay
		moved time.Duration // before that
		lag   time.Duration
	}{
		{time.Minute, 0, onWay{}, 0, 0},                                                     // idle
		{10 * time.Millisecond, size, onWay{queued: size}, 10 * time.Millisecond, 0},        // under way
		{15 * time.Millisecond, size, onWay{}, 0, 5 * time.Millisecond},                     // it is there
		{time.Minute, 2 * size, onWay{queued: size, unsent: size}, 0, 5 * time.Millisecond}, // the other end has no room
		{100 * time.Millisecond, 2 * size, onWay{queued: size, unsent: size, room: true}, 100 * time.Millisecond, 5 * time.Millisecond},
		{100 * time.Millisecond, 2 * size, onWay{queued: size, acked: 1}, 0, 180 * time.Millisecond}, // a part is there
		{10 * time.Millisecond, 2 * size, onWay{acked: 2}, 0, 180*time.Millisecond - 180*time.Millisecond/16},
		{10 * time.Millisecond, 3 * size, onWay{queued: size, acked: 2}, 10 * time.Millisecond, 180*time.Millisecond - 180*time.Millisecond/16},
		{time.Minute, 3 * size, onWay{acked: 3}, 0, stuckMost},
	} {
		now, l.wrote, w = now.Add(c.after), c.wrote, c.is
		k := l.askedKernel(now)
		if got := now.Sub(k.moved); !k.knows || got != c.moved || k.lag != c.lag {
			t.Errorf("%d: moved %v before, lag %v; want %v, %v", i, got, k.lag, c.moved, c.lag)
		}
		if k.arrived != max(k.arrived, c.wrote-uint64(c.is.queued)) { //nolint:gosec // not negative
			t.Errorf("%d: %d bytes are there", i, k.arrived)
		}
		if before := asks; l.askedKernel(now.Add(kernelFresh-1)) != k || asks != before {
			t.Errorf("%d: it is asked again at once", i)
		}
	}
	if asks != 9 {
		t.Errorf("asked %d times", asks)
	}
}

// TestOwes: what the other end's kernel is not known to have is owed, unless something of it is unread here, or nothing
// can be brought.
func TestOwes(t *testing.T) {
	for name, c := range map[string]struct {
		k    kernel
		end  uint64
		owes bool
	}{
		"it is not known":         {kernel{}, 10, true},
		"its last byte is there":  {kernel{knows: true, arrived: 10, now: onWay{queued: 5}}, 10, false},
		"its last byte is not":    {kernel{knows: true, arrived: 9, now: onWay{queued: 5}}, 10, true},
		"where it ends is not":    {kernel{knows: true, arrived: 9, now: onWay{queued: 5}}, 0, true},
		"something is unread":     {kernel{knows: true, arrived: 9, now: onWay{queued: 5, unread: 1}}, 10, false},
		"nothing is on its way":   {kernel{knows: true, arrived: 9}, 10, false},
		"the other end is full":   {kernel{knows: true, arrived: 9, now: onWay{queued: 5, unsent: 5}}, 10, false},
		"we have not sent it yet": {kernel{knows: true, arrived: 9, now: onWay{queued: 5, unsent: 5, room: true}}, 10, true},
	} {
		if c.k.owes(c.end) != c.owes {
			t.Errorf("%s: owed: %v", name, !c.owes)
		}
	}
}

// TestUnsent: what the kernel has not sent is known of a connection by TCP, and of no other.
func TestUnsent(t *testing.T) {
	here, _ := loopback(t)
	if n := unsent(here); n != 0 {
		t.Errorf("nothing was written, and %d bytes are not sent", n)
	}
	go func() {
		for {
			if _, err := here.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}()
	until(t, here, func(w onWay) bool { return w.unsent > 0 }) // the other end reads nothing
	if n := unsent(here); n <= 0 {
		t.Errorf("%d bytes are not sent", n)
	}
	if pipe, _ := net.Pipe(); unsent(pipe) != -1 {
		t.Error("a pipe's kernel is asked")
	}
}
