package proxy_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestFewPagesWaitForMore: what is read more slowly than it is sent goes in frames of several pages.
func TestFewPagesWaitForMore(t *testing.T) {
	f := newFakes(t)
	rng := rand.New(rand.NewPCG(1, 8))
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	const pages, most = 800, 5 * time.Millisecond // for so long a frame waits
	begun := time.Now()
	for page := range uint64(pages) {
		f.from.write(t, rng, page)
		if err := f.from.w.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Microsecond)
	}
	f.delivered(t, pages)
	took := time.Since(begun)
	if n := f.src.Stats().Progress.Frames; int(n) > int(took/most)+pages/16 { // full ones do not wait
		t.Errorf("%d pages went in %d frames within %v", pages, n, took)
	}
	f.switchOver(t)
}
