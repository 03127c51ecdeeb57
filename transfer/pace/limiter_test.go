package pace

import (
	"context"
	"sync"
	"testing"
)

// TestStreamsTakeInTurn: one that waits is served before those that came after it, however many they are.
func TestStreamsTakeInTurn(t *testing.T) {
	const streams, all, rate = 4, 60, 1 << 20
	var l Limiter
	l.Set(rate)
	ctx, end := context.WithCancel(t.Context())
	var mu sync.Mutex
	var running sync.WaitGroup
	took, sum := [streams]int{}, 0
	for i := range streams {
		running.Go(func() {
			for l.Take(ctx, rate/200) == nil {
				mu.Lock()
				took[i]++
				if sum++; sum == all {
					end()
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	end()
	for i, n := range took {
		if n < all/streams*3/4 {
			t.Errorf("stream %d took %d of %d: %v", i, n, all, took)
		}
	}
}

// TestPiece: the slower, the smaller, so that nobody waits long for its turn.
func TestPiece(t *testing.T) {
	var l Limiter
	for rate, want := range map[int64]int{0: 32 << 10, 10e6: 32 << 10, 125_000: 6250, 1: 1 << 10} {
		l.Set(rate)
		if got := l.Piece(32 << 10); got != want {
			t.Errorf("%d bytes/s: %d, want %d", rate, got, want)
		}
	}
}
