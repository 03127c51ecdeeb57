package policy

import (
	"testing"
	"time"
)

// TestHandling: what is left takes as long as both ends need for it, where the paths have room.
func TestHandling(t *testing.T) {
	const goodput = 30 * mega
	// 10 000 pages are handled in 200 ms, at 100 bytes each or at a half of what the paths carry in that time and more.
	known := []Handled{{200 * ms, 0, 40_000, 0, goodput}, {400 * ms, 10_000, 30_000, mega, goodput}}
	full := []Handled{{200 * ms, 0, 40_000, 0, goodput}, {400 * ms, 10_000, 30_000, 5 * mega, goodput}}
	for _, c := range []struct {
		name  string
		looks []Handled
		last  Handled
		want  time.Duration
	}{
		{"nothing was seen", nil, Handled{At: 100 * ms, Left: 40_000, Goodput: goodput}, 0},
		{"known pages", known, Handled{450 * ms, 12_000, 28_000 + handlingSpare, mega, goodput}, 560 * ms},
		{"few are left", known, Handled{450 * ms, 38_000, handlingSpare, mega, goodput}, 0},
		{"the paths were full", full, Handled{450 * ms, 12_000, 28_000, 6 * mega, goodput}, 0},
		{"slower than it can be, as the paths are full", known, Handled{600 * ms, 12_000, 10_000 + handlingSpare, 7 * mega, goodput}, 200 * ms},
		{"slower than before, and it is not the paths", known, Handled{600 * ms, 15_000, 25_000 + handlingSpare, mega, goodput}, time.Second},
		{"a copy that stands still", known, Handled{600 * ms, 10_000, 25_000 + handlingSpare, mega, goodput}, 500 * ms},
		{"the paths' rate is not known", []Handled{{200 * ms, 0, 40_000, 0, 0}}, Handled{400 * ms, 10_000, 30_000, 0, 0}, 0},
	} {
		var h Handling
		for _, look := range c.looks {
			h.See(look)
		}
		if got := h.See(c.last); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := (Look{Remaining: 5 * mega, Goodput: 10 * mega, Tail: 1, Work: 2 * time.Second}).Downtime(0); got != load+2*time.Second {
		t.Errorf("more to handle than to send: %v", got)
	}
	if got := (Look{Remaining: 10*mega - 1, Goodput: 10 * mega, Tail: 1, Work: 500 * ms}).Downtime(0); got != load+time.Second {
		t.Errorf("more to send than to handle: %v", got)
	}
}
