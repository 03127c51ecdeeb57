package paths

import (
	"net"
	"testing"
	"time"

	"godwit/internal/need"

	"golang.org/x/sys/unix"
)

// told has a lane's kernel say that.
func told(l *lane, w onWay, since time.Time) {
	l.kernel = kernel{ask: func() (onWay, bool) { return w, true }, arrived: l.wrote - uint64(w.queued), moved: since} //nolint:gosec // less
}

// TestLateProcessorIsNoStuckPath: what is late, by the clock, is on a stuck path only where the kernel has it on its way and
// nothing of it arrives.
func TestLateProcessorIsNoStuckPath(t *testing.T) {
	const size = 4096
	for name, c := range map[string]struct {
		kernel onWay
		still  time.Duration // for how long nothing has arrived
		late   time.Duration // more than 80 ms
		stuck  bool
	}{
		"a path that brings nothing":               {onWay{queued: size}, time.Second, 0, true},
		"one that brings things":                   {onWay{queued: size}, 0, 0, false},
		"the other end has it, and takes it late":  {onWay{}, time.Second, 0, false},
		"the other end has no room, as it is late": {onWay{queued: size, unsent: size}, time.Second, 0, false},
		"it cannot leave our host":                 {onWay{queued: size, unsent: size, room: true}, time.Second, 0, true},
		"we send it late":                          {onWay{queued: size, unsent: size, room: true}, 0, 0, false},
		"we read late that it has arrived":         {onWay{queued: size, unread: 40}, time.Second, 0, false},
		"somebody between says that it has come":   {onWay{}, time.Second, stuckMost, true},
		"some of it was lost between, and we read": {onWay{unread: 40}, time.Second, stuckMost, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			s, cut, slow, f := stuckBeside(now)
			f.flights = f.flights[:1] // it is on the cut one alone
			slow.flights = nil
			cut.wrote, cut.flights[0].end = size, size
			cut.flights[0].eta = cut.flights[0].eta.Add(-c.late)
			told(cut, c.kernel, now.Add(-c.still))
			if cut.stuck(now) != c.stuck {
				t.Errorf("stuck: %v, late by %v", cut.stuck(now), cut.late(now))
			}
			if again := s.rescue(slow, now, false) != nil; again != c.stuck {
				t.Errorf("it goes again: %v", again)
			}
		})
	}
}

// TestNothingGoesAgainThatHasArrived: the other end's kernel has a frame, and its processor is late; a lane that has
// nothing to do does not repeat it, and does so with one that the path has yet to bring.
func TestNothingGoesAgainThatHasArrived(t *testing.T) {
	const size = 4096
	for _, left := range []int{0, size} {
		now := time.Now()
		s, cut, idle, f := stuckBeside(now)
		f.flights, idle.flights, idle.rtt = f.flights[:1], nil, time.Millisecond
		cut.wrote, cut.flights[0].end = size, size
		told(cut, onWay{queued: left}, now.Add(-time.Second))
		if again := s.repeat(idle, now) != nil; again != (left > 0) {
			t.Errorf("with %d bytes of it on their way it goes again: %v", left, again)
		}
	}
}

// TestPatientBets: once that much went again by guesses, what is late waits for an acknowledgement that may be delayed.
func TestPatientBets(t *testing.T) {
	const size = 4096
	for late, wanted := range map[time.Duration]bool{ackDelay / 2: false, 2 * ackDelay: true} {
		now := time.Now()
		s, cut, idle, f := stuckBeside(now)
		f.urgent = false
		f.flights, idle.flights, idle.rtt = f.flights[:1], nil, time.Millisecond
		cut.wrote, cut.flights[0].end, cut.flights[0].eta = size, size, now.Add(-cut.rtt-late)
		s.bets, s.ackedBytes = mostBets, betsOf*2*mostBets
		told(cut, onWay{queued: size}, now)
		if again := s.repeat(idle, now) != nil; again != wanted {
			t.Errorf("late by %v it goes again: %v", late, again)
		}
	}
}

// TestWhatHasArrivedKeepsNothingWaiting: what a frame on its way waits for is what its path has yet to bring, and not
// what the other end has yet to take.
func TestWhatHasArrivedKeepsNothingWaiting(t *testing.T) {
	now := time.Now()
	l := &lane{estimate: estimate{rtt: 20 * time.Millisecond, expected: 10 << 20, inflight: 10 << 20}, wrote: 10 << 20}
	told(l, onWay{}, now)
	if d, known := l.arrives(0, now); !known || d != l.rtt/2 {
		t.Errorf("it takes %v, known: %v", d, known)
	}
	told(l, onWay{queued: 10 << 20}, now)
	if d, _ := l.arrives(0, now); d < 900*time.Millisecond {
		t.Errorf("behind all that it takes %v", d)
	}
}

// TestLaneThatBringsIsUsed: where acknowledgements are late on a path that brings things all the time, frames are not
// left to another one.
func TestLaneThatBringsIsUsed(t *testing.T) {
	const size = 4096
	for still, left := range map[time.Duration]bool{time.Millisecond: false, time.Second: true} {
		now := time.Now()
		s, cut, slow, f := stuckBeside(now)
		slow.rtt, slow.flights, f.flights = 60*time.Millisecond, nil, f.flights[:1]
		cut.wrote, cut.flights[0].end = size, size
		told(cut, onWay{queued: size}, now.Add(-still))
		if got := s.sooner(cut, &frame{number: 2, payload: make([]byte, size)}, now); got != left {
			t.Errorf("with nothing brought for %v it is left to the other: %v", still, got)
		}
	}
}

// TestFewBets: what goes again by a guess is bounded.
func TestFewBets(t *testing.T) {
	const size = 256 << 10
	now := time.Now()
	s, cut, idle, f := stuckBeside(now)
	idle.flights, idle.rtt = nil, time.Millisecond
	delete(s.unacked, f.number)
	cut.flights = nil
	for n := range uint64(100) {
		f := &frame{number: n + 1, payload: make([]byte, size)}
		f.flights = []*flight{{frame: f, lane: cut, eta: now.Add(time.Hour)}}
		cut.flights, s.unacked[f.number] = append(cut.flights, f.flights[0]), f
	}
	again := func() (n int64) {
		for s.repeat(idle, now) != nil {
			n += size
		}
		return n
	}
	if n := again(); n != mostBets {
		t.Errorf("%d bytes went again", n)
	}
	s.ackedBytes = 4 * betsOf * mostBets // of which half was before the stop
	s.before = s.ackedBytes / 2
	if n := again(); n != mostBets {
		t.Errorf("after so many have arrived, %d bytes more", n)
	}
}

// loopback are both ends of a connection by TCP.
func loopback(t *testing.T) (here, there net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err = net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// until asks a connection's kernel until it says so.
func until(t *testing.T, conn net.Conn, so func(onWay) bool) {
	t.Helper()
	for ask, limit := askKernel(conn), need.Patient(10*time.Second); ; time.Sleep(time.Millisecond) {
		w, ok := ask()
		if !ok {
			t.Fatal("the kernel does not tell")
		}
		if so(w) {
			return
		}
		if limit.Over() {
			t.Fatalf("it says %+v", w)
		}
	}
}

// TestWhatTheKernelKnows of a connection whose other end reads nothing: it has what it has room for, the rest is not on
// its way, and neither is late.
func TestWhatTheKernelKnows(t *testing.T) {
	here, there := loopback(t)
	if _, err := here.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	until(t, here, func(w onWay) bool { return w == onWay{acked: w.acked} && w.acked >= 1000 })
	until(t, there, func(w onWay) bool { return w.unread == 1000 })
	go func() {
		for {
			if _, err := here.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}()
	until(t, here, func(w onWay) bool { return w.queued > 0 && !w.toBring() })
	if pipe, _ := net.Pipe(); askKernel(pipe) != nil {
		t.Error("a pipe's kernel is asked")
	}
}

// TestLookWhileWriting: what is written while the kernel is asked does not hide what is on its way.
func TestLookWhileWriting(t *testing.T) {
	for range 20 {
		queued, unsent := 10, 0
		w, ok := lookAt(func(request uint) (int, error) {
			defer func() { queued, unsent = queued+100, unsent+100 }()
			return map[uint]int{unix.SIOCOUTQ: queued, unix.SIOCOUTQNSD: unsent}[request], nil
		})
		if !ok || !w.toBring() {
			t.Fatalf("nothing is on its way: %+v", w)
		}
	}
	if _, ok := lookAt(func(uint) (int, error) { return 0, net.ErrClosed }); ok {
		t.Error("it is known of a connection that is closed")
	}
}

// TestUnreadIsNoSilence: a lane of which nothing was read for long is not dead while something waits to be read: our
// own processor is late.
func TestUnreadIsNoSilence(t *testing.T) {
	here, there := loopback(t)
	now := time.Now()
	l := &lane{conn: here, heardAt: now.Add(-2 * Silence)}
	l.kernel.ask = askKernel(here)
	if l.check(now) == nil {
		t.Error("nothing waits, and the lane lives on")
	}
	if _, err := there.Write(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	until(t, here, func(w onWay) bool { return w.unread > 0 })
	if err := l.check(now.Add(kernelFresh)); err != nil {
		t.Error(err)
	}
}

// TestTakenLateIsNotHalfOpen: an end that says for long that it reads nothing, as it takes one frame, or its QEMU reads
// nothing, has its lanes live on where its kernel has what we sent: no other connection would bring more, and all of it
// would go again. One whose path has yet to bring it is dead.
func TestTakenLateIsNotHalfOpen(t *testing.T) {
	const size = 4096
	for name, c := range map[string]struct {
		kernel onWay
		moved  time.Duration // before now
		waits  time.Duration
		dead   bool
	}{
		"the other end's kernel has it":         {onWay{}, HalfOpen, HalfOpen, false},
		"and has no room for more":              {onWay{queued: size, unsent: size}, HalfOpen, HalfOpen, false},
		"it has said so, unread":                {onWay{queued: size, unread: 40}, HalfOpen, HalfOpen, false},
		"the path has yet to bring it":          {onWay{queued: size}, HalfOpen, HalfOpen, true},
		"an acknowledgement of ours is on it":   {onWay{queued: 40}, 30 * time.Millisecond, HalfOpen, false},
		"it is said to have it, and never does": {onWay{}, HalfOpen, takenLate, true},
	} {
		now := time.Now()
		l := &lane{wrote: 2 * size, heardAt: now, toldAt: now, progress: now.Add(-c.waits - time.Second)}
		told(l, c.kernel, now.Add(-c.moved))
		if err := l.check(now); (err != nil) != c.dead {
			t.Errorf("%s: %v", name, err)
		}
	}
}
