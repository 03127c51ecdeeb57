package sample

import (
	"bytes"
	"testing"

	"godwit/transfer/pages"
)

// TestXbzrle: a page takes what changed of it, and never more than it has.
func TestXbzrle(t *testing.T) {
	before := noise()
	with := func(at ...int) []byte {
		out := bytes.Clone(before)
		for _, i := range at {
			out[i]++
		}
		return out
	}
	for name, c := range map[string]struct {
		now  []byte
		want int
	}{
		"one byte at its begin": {with(0), xbzrleHeader + 1 + 1 + 1},
		"two, far apart":        {with(0, 4000), xbzrleHeader + 1 + 1 + 1 + 2 + 1 + 1},
		"side by side":          {with(6, 7, 8), xbzrleHeader + 1 + 1 + 3},
		"the last":              {with(pages.Size - 1), xbzrleHeader + 2 + 1 + 1},
	} {
		if got := xbzrle(c.now, before); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
	if got := xbzrle(bytes.Repeat([]byte{1}, pages.Size), zeroPage[:]); got != xbzrleHeader+pages.Size {
		t.Errorf("all of it is another: %d bytes", got)
	}
	if sum := byXbzrle([][]byte{before, with(0)}, [][]byte{before, before}); sum.In != pages.Size || sum.Out != xbzrleHeader+3 {
		t.Errorf("%+v: what is as it was counts", sum)
	}
}
