package encode

import (
	"fmt"
	"strings"
	"testing"

	"godwit/transfer/pages"
)

// TestRepack: what another level would have come to is what it comes to, and nothing of the frame changes by asking.
func TestRepack(t *testing.T) {
	frame := func() *pages.Frame {
		f := &pages.Frame{Number: 1}
		for n := range uint64(40) {
			data := []byte(strings.Repeat(fmt.Sprintf("line %d of page %d\n", n*7, n), 400))[:pages.Size]
			f.Pages = append(f.Pages, pages.Page{Number: 3 * n, Data: data})
		}
		return f
	}
	for _, level := range []Level{S2, Zstd1, Zstd3, Zstd7} {
		_, want := NewCoder(nil, nil).Encode(nil, frame(), level)
		c, f := NewCoder(nil, nil), frame()
		body, counts := c.Encode(nil, f, Zstd1)
		before := string(body)
		if got, want := c.Repack(level), want.Bytes[pages.Batch]+want.Bytes[pages.Raw]; got != want {
			t.Errorf("%v: %d bytes, and %d as it is coded", level, got, want)
		}
		if string(body) != before || f.Pages[0].Coding != pages.Batch || counts.Pages[pages.Batch] != 40 {
			t.Errorf("%v: the frame is another", level)
		}
	}
}
