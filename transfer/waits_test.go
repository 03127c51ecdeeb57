package transfer

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaited: it is known for how long something waited to be sent: all the time while the peer takes nothing, and none
// while there is nothing to send; and how much the peer's host has.
func TestWaited(t *testing.T) {
	r := newRig(t, nil)
	const size = 64 << 20
	wrote := make(chan error, 1)
	go func() {
		_, err := r.qemu.Write(make([]byte, size))
		wrote <- err
	}()
	look := func() (s Stats, before, after time.Time) {
		before = time.Now()
		s = r.src.Stats()
		return s, before, time.Now()
	}
	stuck := r.src.Stats()
	for until := time.Now().Add(hang); ; time.Sleep(100 * time.Millisecond) {
		s := r.src.Stats()
		if s.Forward == stuck.Forward && s.Backlog == stuck.Backlog && s.Forward > 0 && s.Waited > stuck.Waited {
			break // what can wait does
		}
		if stuck = s; time.Now().After(until) {
			t.Fatalf("it is not stuck: %+v", s)
		}
	}
	first, from, begun := look()
	time.Sleep(50 * time.Millisecond)
	second, ended, to := look()
	if waited := second.Waited - first.Waited; waited < ended.Sub(begun) || waited > to.Sub(from) {
		t.Errorf("stuck for %v to %v, it waited for %v", ended.Sub(begun), to.Sub(from), waited)
	}
	if second.Carried == 0 || second.Carried >= size {
		t.Errorf("stuck: %+v", second)
	}

	if _, err := io.CopyN(io.Discard, r.peer, size); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	idle := r.src.Stats()
	for until := time.Now().Add(hang); ; time.Sleep(10 * time.Millisecond) {
		s := r.src.Stats()
		if s.Carried >= size && s.Waited == idle.Waited {
			break
		}
		if idle = s; time.Now().After(until) {
			t.Fatalf("all has come, and %+v", s)
		}
	}
	time.Sleep(50 * time.Millisecond)
	if s := r.src.Stats(); s.Waited != idle.Waited || s.Carried != idle.Carried {
		t.Errorf("idle %+v, then %+v", idle, s)
	}
}

// TestWaitedOnAnyStream: streams on which something waits at the same time count once.
func TestWaitedOnAnyStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waits
		for _, step := range []struct {
			do   func()
			want int // seconds, a second later
		}{{w.begin, 1}, {w.begin, 2}, {w.end, 3}, {w.end, 3}, {w.begin, 4}, {w.end, 4}} {
			step.do()
			time.Sleep(time.Second)
			if got := w.waited(); got.Seconds() != float64(step.want) {
				t.Errorf("%v, want %d s", got, step.want)
			}
		}
	})
}
