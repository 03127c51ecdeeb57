package policy

import (
	"testing"
	"time"
)

// TestCopied: how fast hosts are is learnt from a copy that waited for them; one that waited for the paths tells only that
// they are no slower.
func TestCopied(t *testing.T) {
	const rate, mb = 100_000_000, 1 << 20
	took := beginning + 2*time.Second
	for name, c := range map[string]struct {
		copied         Copied
		foreseen, want int64
	}{
		"hosts were waited for":                 {Copied{100 * mb, took, 10 * mb, rate}, 80 * mb, 50 * mb},
		"they are faster than was foreseen":     {Copied{100 * mb, took, 10 * mb, rate}, 30 * mb, 50 * mb},
		"paths were waited for":                 {Copied{100 * mb, took, 20 * mb, rate}, 80 * mb, 80 * mb},
		"paths, and no host is as slow":         {Copied{100 * mb, took, 20 * mb, rate}, 30 * mb, 50 * mb},
		"paths, and nothing was foreseen":       {Copied{100 * mb, took, 20 * mb, rate}, 0, 0},
		"hosts, and nothing was foreseen":       {Copied{100 * mb, took, 10 * mb, rate}, 0, 50 * mb},
		"paths of a rate that nobody knows":     {Copied{100 * mb, took, 10 * mb, 0}, 80 * mb, 80 * mb},
		"too short to tell":                     {Copied{100 * mb, beginning, 1, rate}, 80 * mb, 80 * mb},
		"nothing was read, as of another agent": {Copied{0, took, 1, rate}, 80 * mb, 80 * mb},
	} {
		if got := c.copied.Foresee(c.foreseen); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestBetween: of what may be so or so much a forecast in the middle is wrong by the same factor at both ends.
func TestBetween(t *testing.T) {
	for _, c := range [][3]int64{{50, 200, 100}, {50, 50, 50}, {50, 10, 50}, {1 << 40, 1 << 42, 1 << 41}, {0, 9, 0}} {
		if got := Between(c[0], c[1]); got < c[2]*999/1000 || got > c[2]*1001/1000 {
			t.Errorf("%v: %d", c, got)
		}
	}
}
