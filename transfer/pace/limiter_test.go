package pace

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// takers have so many streams of each share take pieces, until all have taken sum bytes, and returns what each stream did.
func takers(t *testing.T, sum int, streams ...func(ctx context.Context) (n int, err error)) []int {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var mu sync.Mutex
	var running sync.WaitGroup
	took, all := make([]int, len(streams)), 0
	for i, take := range streams {
		running.Go(func() {
			for {
				n, err := take(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				took[i] += n
				if all += n; all >= sum {
					end()
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	return took
}

func piecesOf(s *Share, n int) func(ctx context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return s.Take(ctx, n) }
}

// TestStreamsTakeInTurn: one that waits is served before those that came after it, however many they are.
func TestStreamsTakeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, all, rate = 4, 60, 1 << 20
		var l Limiter
		l.Set(rate)
		s, piece := l.Share(), rate/200
		one := piecesOf(s, piece)
		took := takers(t, all*piece, one, one, one, one)
		for i, n := range took {
			if n < all/streams*3/4*piece {
				t.Errorf("stream %d took %d of %d: %v", i, n, all*piece, took)
			}
		}
	})
}

// TestSharesAreEven: a share has as much as another, whatever its streams and pieces are, and all of it
// where the other has nothing to send.
func TestSharesAreEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 4 << 20
		var l Limiter
		l.Set(rate)
		memory, disks := l.Share(), l.Share()
		lane, disk := piecesOf(memory, 32<<10), piecesOf(disks, 4<<10)
		begun := time.Now()
		took := takers(t, 2<<20, lane, lane, lane, lane, disk)
		if part := float64(took[4]) / (2 << 20); part < 0.4 || part > 0.6 {
			t.Errorf("one stream of small pieces beside four of large ones took %.2f of all", part)
		}
		if d := time.Since(begun); d < 400*time.Millisecond {
			t.Errorf("2 MiB at 4 MiB/s took %v", d)
		}
		begun = time.Now()
		takers(t, 1<<20, lane, lane)
		if d := time.Since(begun); d > 800*time.Millisecond {
			t.Errorf("1 MiB at 4 MiB/s, while the other share rests, took %v", d)
		}
		if took = takers(t, 1<<20, lane, disk); took[1] < 400<<10 { // what it did not take before is not owed to it
			t.Errorf("after a rest of the other: %v", took)
		}
	})
}

// TestRestSavesNothing: a share that took nothing for long does not keep the others waiting for as long.
func TestRestSavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		l.Set(4 << 20)
		memory, disks := l.Share(), l.Share()
		takers(t, 1<<20, piecesOf(memory, 32<<10))
		took := takers(t, 1<<20, piecesOf(memory, 32<<10), piecesOf(disks, 32<<10))
		if took[0] < 400<<10 || took[1] < 400<<10 {
			t.Errorf("memory and disks took %v", took)
		}
	})
}

// TestNewRate: who waits by an old rate goes on by the new one, and without a limit at once.
func TestNewRate(t *testing.T) {
	for _, rate := range []int64{0, 1 << 30} {
		var l Limiter
		l.Set(1)
		one, other := l.Share(), l.Share()
		if _, err := one.Take(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		took := make(chan error, 2)
		for _, s := range []*Share{one, other} {
			go func() {
				_, err := s.Take(t.Context(), 1)
				took <- err
			}()
		}
		select {
		case <-took:
			t.Fatal("taken at 1 byte/s")
		case <-time.After(50 * time.Millisecond):
		}
		l.Set(rate)
		for range 2 {
			select {
			case err := <-took:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("at %d bytes/s nobody takes", rate)
			}
		}
	}
}

// TestTakeEndsWithItsContext, also of one who waits for another share.
func TestTakeEndsWithItsContext(t *testing.T) {
	var l Limiter
	l.Set(1)
	one, other := l.Share(), l.Share()
	if _, err := one.Take(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	took := make(chan error, 3)
	for _, s := range []*Share{one, other, nil} {
		go func() {
			<-ctx.Done()
			_, err := s.Take(ctx, 1)
			took <- err
		}()
	}
	go func() {
		_, err := other.Take(ctx, 1)
		took <- err
	}()
	for range 4 {
		if err := <-took; err == nil {
			t.Error("taken after the end")
		}
	}
	if len(l.waiting) > 0 {
		t.Errorf("%d wait still", len(l.waiting))
	}
}

// TestPiece: the slower, the smaller, so that nobody waits long for its turn.
func TestPiece(t *testing.T) {
	var l Limiter
	s := l.Share()
	for rate, want := range map[int64]int{0: 32 << 10, 10e6: 32 << 10, 125_000: 6250, 1: 128} {
		l.Set(0) // nothing is owed
		l.Set(rate)
		if got, err := s.Take(t.Context(), 32<<10); got != want || err != nil {
			t.Errorf("%d bytes/s: %d, want %d, %v", rate, got, want, err)
		}
	}
	if got, err := (*Share)(nil).Take(t.Context(), 32<<10); got != 32<<10 || err != nil {
		t.Errorf("none: %d, %v", got, err)
	}
}

// TestMuchLowerRate: a stream that goes on by the least limit that there is (8 kbit/s), whatever was sent before, is not
// silent for as long as a lane may be.
func TestMuchLowerRate(t *testing.T) {
	for name, before := range map[string][]int64{"from 1 Gbit/s": {125e6}, "from none": {0}, "by way of none": {125e6, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l Limiter
				l.Set(before[0])
				memory, disks := l.Share(), l.Share()
				var last [8]time.Time
				var mu sync.Mutex
				var longest time.Duration
				stream := func(i int, s *Share) func(context.Context) (int, error) {
					return func(ctx context.Context) (int, error) {
						n, err := s.Take(ctx, 32<<10)
						mu.Lock()
						if now := time.Now(); err == nil {
							if !last[i].IsZero() {
								longest = max(longest, now.Sub(last[i]))
							}
							last[i] = now
						}
						mu.Unlock()
						time.Sleep(100 * time.Microsecond) // so that time goes on without a limit
						return n, err
					}
				}
				time.AfterFunc(50*time.Millisecond, func() {
					for _, rate := range append(before[1:], 1000) {
						l.Set(rate)
					}
				})
				ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
				defer end()
				var running sync.WaitGroup
				for i := range last {
					take := stream(i, []*Share{memory, disks}[i%2])
					running.Go(func() {
						for ctx.Err() == nil {
							take(ctx) //nolint:errcheck // of ctx
						}
					})
				}
				running.Wait()
				if longest > 1500*time.Millisecond {
					t.Errorf("a stream was silent for %v", longest)
				}
			})
		})
	}
}
