package policy

import (
	"slices"
	"testing"
	"time"
)

// TestHandling: what is left takes as long as both ends need for it, where the paths have room.
func TestHandling(t *testing.T) {
	const goodput = 30 * mega
	// 10 000 pages are handled in 200 ms, at 100 bytes each or at a half of what the paths carry in that time and more.
	look := func(at time.Duration, pages, left uint64, acked int64) Handled {
		return Handled{At: at, Pages: pages, Left: left, Acked: acked, Goodput: goodput}
	}
	const spare = 500 // pages, at 50 000 per second
	known := []Handled{look(200*ms, 0, 40_000, 0), look(400*ms, 10_000, 30_000, mega)}
	full := []Handled{look(200*ms, 0, 40_000, 0), look(400*ms, 10_000, 30_000, 5*mega)}
	kept := look(450*ms, 12_000, 5_000, mega)
	kept.Kept = 5_000
	for _, c := range []struct {
		name  string
		looks []Handled
		last  Handled
		want  time.Duration
	}{
		{"nothing was seen", nil, look(100*ms, 0, 40_000, 0), 0},
		{"known pages", known, look(450*ms, 12_000, 28_000+spare, mega), 560 * ms},
		{"few are left", known, look(450*ms, 38_000, spare, mega), 0},
		{"some are left", known, look(450*ms, 38_000, 2000+spare, mega), 40 * ms},
		{"what is kept is handled in the pause", known, kept, 90 * ms},
		{"the paths were full", full, look(450*ms, 12_000, 28_000, 6*mega), 0},
		{"slower than it can be, as the paths are full", known, look(600*ms, 12_000, 10_000+spare, 7*mega), 200 * ms},
		{"slower than before, and it is not the paths", known, look(600*ms, 15_000, 25_000+spare/2, mega), time.Second},
		{"a copy that stands still", known, look(600*ms, 10_000, 25_000+spare, mega), 500 * ms},
		{"nobody was behind for long", known, look(2401*ms, 40_000, 2000, mega), 0},
		{"the paths' rate is not known", []Handled{{At: 200 * ms, Left: 40_000}}, Handled{At: 400 * ms, Pages: 10_000, Left: 30_000}, 0},
		{"a second wait", append(slices.Clone(known), look(100*ms, 10_000, 5_000+spare, mega)), look(200*ms, 10_500, 5_000+spare, mega), 100 * ms},
		{"a second wait, slower", append(slices.Clone(known), look(100*ms, 10_000, 5_000, mega), look(200*ms, 11_000, 5_000, mega)), look(400*ms, 12_000, 5_000+spare/10, mega), time.Second},
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

// TestKeptPagesAreNotWaitedFor: hot pages that are kept back for the pause, and a trickle of others, say nothing of how fast
// both ends are.
func TestKeptPagesAreNotWaitedFor(t *testing.T) {
	var h Handling
	c := Copying{Budget: 300 * ms}
	for at := 20 * ms; at < 5*time.Second; at += 20 * ms {
		work := h.See(Handled{At: at, Pages: uint64(at/ms) / 5, Left: 4_000, Kept: 3_996, Acked: int64(at/ms) * 4, Goodput: 125 * mega})
		if c.See(Look{At: at, Turn: 2 + int64(at/(150*ms)), Remaining: 4_000 * 800, Goodput: 125 * mega, Tail: PackedTail, Work: work}) == Go {
			return
		}
	}
	t.Error("the budget is met, and the copy went on")
}
