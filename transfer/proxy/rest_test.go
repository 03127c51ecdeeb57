package proxy_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLastRoundsRest: a guest that always writes to the same few pages is not read as fast as its
// QEMU can repeat them, until the stop phase.
func TestLastRoundsRest(t *testing.T) {
	const rounds, least = 60, 30 * 20 * time.Millisecond // half of what they take one by one
	f := newFakes(t)
	rng := rand.New(rand.NewPCG(1, 7))
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	repeat := func(pages uint64, times int) time.Duration {
		begun := time.Now()
		for range times {
			for page := range pages {
				f.from.write(t, rng, page)
			}
			if err := f.from.w.EndPart(); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(begun)
	}
	repeat(fakePages, 3)
	if took := repeat(300, rounds); took < least {
		t.Errorf("%d rounds of the same pages were read in %v, want %v at least", rounds, took, least)
	}
	f.src.AllowSwitchover()
	f.src.Hurry()
	repeat(300, 10*rounds) // 12 s, if each rested
	if err := f.from.w.End(); err != nil {
		t.Fatal(err)
	}
	if err := f.from.w.Tail(fakeTail()); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
}
