package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnstileKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turnstile
		through := make(chan int, 4)
		for _, n := range []int{3, 1, 2, 0} {
			go func() {
				if !turn.await(t.Context(), n) {
					t.Errorf("%d was turned away", n)
				}
				through <- n
				time.Sleep(time.Second) // what it does in its turn
				turn.pass(n)
			}()
			synctest.Wait() // it waits, or is through
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		close(through)
		var order []int
		for n := range through {
			order = append(order, n)
		}
		if !slices.Equal(order, []int{0, 1, 2, 3}) {
			t.Errorf("through in the order %v", order)
		}
	})
}

func TestTurnstileGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turnstile
		begun := time.Now()
		if turn.await(t.Context(), 1) || time.Since(begun) != turnWait {
			t.Errorf("through, or turned away after %v", time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if turn.await(ctx, 1) {
			t.Error("through when its context had ended")
		}
	})
}

// TestTurnstileTwice: a stream that comes again, after its turn, does not wait and
// takes nobody else's.
func TestTurnstileTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn turnstile
		for range 2 {
			for n := range 3 {
				if !turn.await(t.Context(), n) {
					t.Fatalf("%d was turned away", n)
				}
				turn.pass(n)
			}
		}
		if turn.next != 3 {
			t.Errorf("next is %d", turn.next)
		}
	})
}
