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
	const pages = 800
	for page := range uint64(pages) {
		f.from.write(t, rng, page)
		if err := f.from.w.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Microsecond)
	}
	f.delivered(t, pages)
	if n := f.src.Stats().Progress.Frames; n > pages/4 {
		t.Errorf("%d pages went in %d frames", pages, n)
	}
	f.switchOver(t)
}
