package pages

import (
	"math/rand/v2"
	"testing"
	"time"
)

// follower is a guest that runs before its pages are there, and the link over which they follow it, in virtual time.
type follower struct {
	t       *testing.T
	store   *Store
	rtt     time.Duration
	perPage time.Duration // that a page takes on the link
	now     time.Duration // of the guest
	free    time.Duration // when the link has sent all it was given
	arrives map[uint64]time.Duration
	waits   int
	waited  time.Duration
}

// zeros is a spill that keeps nothing.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (zeros) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// queued is how much sending waits at most, and framePages what a frame has, as in package proxy.
const (
	queued     = 30 * time.Millisecond
	framePages = 16
)

// newFollower has all pages of a guest wait. The link carries so many bytes of pages per second.
func newFollower(t *testing.T, total uint64, rtt time.Duration, rate float64) *follower {
	s := New(total, NewArena(1<<20, nil, zeros{}))
	s.End()
	for n := range total {
		if err := s.Put(n, content(1)); err != nil {
			t.Fatal(err)
		}
	}
	s.PostCopy()
	return &follower{t: t, store: s, rtt: rtt, perPage: time.Duration(Size / rate * float64(time.Second)), arrives: map[uint64]time.Duration{}}
}

// send puts a frame on the link at some time.
func (f *follower) send(at time.Duration, urgent bool) bool {
	take := f.store.Take
	if urgent {
		take = f.store.TakeUrgent
	}
	frame, err := take(framePages)
	if err != nil {
		f.t.Fatal(err)
	}
	if frame == nil {
		return false
	}
	f.free = max(f.free, at) + time.Duration(len(frame.Pages))*f.perPage
	for i := range frame.Pages {
		frame.Pages[i].Coding = Raw
		f.arrives[frame.Pages[i].Number] = f.free + f.rtt/2
	}
	f.store.Sent(frame)
	return true
}

// until has the source send what it does until then.
func (f *follower) until(then time.Duration) {
	for f.free-queued < then && f.send(f.free-queued, false) {
	}
}

// touch has the guest use a page, and wait for it where it is not there.
func (f *follower) touch(page uint64) {
	heard := f.now + f.rtt/2
	f.until(f.now)
	at, sent := f.arrives[page]
	if sent && at <= f.now {
		return
	}
	f.until(heard)
	if _, sent = f.arrives[page]; !sent && f.store.Urgent(page) {
		f.send(heard, true)
	}
	if at, sent = f.arrives[page]; !sent {
		return // the guest has it
	}
	f.waits++
	f.waited += max(at-f.now, 0)
	f.now = max(at, f.now)
}

// TestFollowsWhatIsTouched: a guest with one processor that goes through its memory waits little longer than the link
// takes, and not a round trip for each area; and one that touches pages at random waits no longer than for all of it.
func TestFollowsWhatIsTouched(t *testing.T) {
	const (
		total   = 16 << 10 // 64 MiB
		touches = 3 << 10
		work    = 200 * time.Microsecond // between two touches
	)
	for name, c := range map[string]struct {
		next func(r *rand.Rand) func() uint64
		most time.Duration // that it waits, 100 ms there and back, 12.5 MB/s
	}{
		"upwards": {func(*rand.Rand) func() uint64 {
			at := uint64(8_000)
			return func() uint64 { at++; return at }
		}, 1500 * time.Millisecond},
		"downwards": {func(*rand.Rand) func() uint64 {
			at := uint64(14_000)
			return func() uint64 { at--; return at }
		}, 2 * time.Second},
		"upwards, and about": {func(r *rand.Rand) func() uint64 {
			at, n := uint64(8_000), 0
			return func() uint64 {
				if n++; n%8 == 0 {
					return r.Uint64N(6_000)
				}
				at++
				return at
			}
		}, 2800 * time.Millisecond},
		"in huge pages": {func(r *rand.Rand) func() uint64 {
			at, n := uint64(0), 0
			return func() uint64 {
				if n++; n%256 == 1 {
					at = r.Uint64N(total/512) * 512
				}
				return at + r.Uint64N(512)
			}
		}, 3 * time.Second},
		"at random": {func(r *rand.Rand) func() uint64 {
			return func() uint64 { return r.Uint64N(total) }
		}, 5500 * time.Millisecond},
	} {
		f := newFollower(t, total, 100*time.Millisecond, 12.5e6)
		next := c.next(rand.New(rand.NewPCG(1, 2)))
		for range touches {
			f.touch(next())
			f.now += work
		}
		t.Logf("%s: waited %v, %d times", name, f.waited.Round(time.Millisecond), f.waits)
		if f.waited > c.most {
			t.Errorf("%s: waited %v, at most %v", name, f.waited, c.most)
		}
	}
}
