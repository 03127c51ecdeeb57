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
	return func(ctx context.Context) (int, error) { return n, s.Take(ctx, n) }
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
		if err := one.Take(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		took := make(chan error, 2)
		go func() { took <- one.Take(t.Context(), 1) }()
		go func() { took <- other.Take(t.Context(), 1) }()
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
			case <-time.After(5 * time.Second):
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
	if err := one.Take(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	took := make(chan error, 3)
	for _, s := range []*Share{one, other, nil} {
		go func() {
			<-ctx.Done()
			took <- s.Take(ctx, 1)
		}()
	}
	go func() { took <- other.Take(ctx, 1) }()
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
	for rate, want := range map[int64]int{0: 32 << 10, 10e6: 32 << 10, 125_000: 6250, 1: 1 << 10} {
		l.Set(rate)
		if got := s.Piece(32 << 10); got != want {
			t.Errorf("%d bytes/s: %d, want %d", rate, got, want)
		}
	}
	if got := (*Share)(nil).Piece(32 << 10); got != 32<<10 {
		t.Errorf("none: %d", got)
	}
}
