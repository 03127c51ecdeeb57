package proxy_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// TestCatchUp: rounds are read without rest until they get no shorter, and are rested after again.
func TestCatchUp(t *testing.T) {
	f := newFakes(t)
	rng := rand.New(rand.NewPCG(1, 9))
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	round := func(pages uint64) {
		for page := range pages {
			f.from.write(t, rng, page)
		}
		if err := f.from.w.EndPart(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		round(fakePages)
	}
	var over atomic.Bool
	done := make(chan time.Duration)
	go func() {
		begun := time.Now()
		f.src.CatchUp(t.Context())
		over.Store(true)
		done <- time.Since(begun)
	}()
	rounds := 0
	for ; !over.Load() && rounds < 1000; rounds++ {
		round(fakePages)
	}
	if took := <-done; took > 900*time.Millisecond || rounds < 2 {
		t.Errorf("it went on for %v and %d rounds that were all as long", took, rounds)
	}
	begun := time.Now()
	f.src.CatchUp(t.Context())
	if took := time.Since(begun); took > 900*time.Millisecond {
		t.Errorf("nothing came, and it was waited for for %v", took)
	}
	f.src.AllowSwitchover()
	f.src.Hurry()
	if err := f.from.w.End(); err != nil {
		t.Fatal(err)
	}
	if err := f.from.w.Tail(fakeTail()); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
}
