package proxy

import (
	"testing"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

// On a way back most pages are known and take some 40 bytes each. What the guest writes
// meanwhile is not, and must not be foreseen to be as short.
func TestWhatIsWrittenIsNotForeseenAsKnown(t *testing.T) {
	s := &Source{}
	for range 100 {
		f := &pages.Frame{Pages: make([]pages.Page, 64)}
		var c encode.Counts
		c.Pages[pages.Known], c.Bytes[pages.Known] = 60, 60*40
		c.Pages[pages.Batch], c.Bytes[pages.Batch] = 4, 4*2000
		c.Out = 60*40 + 4*2000
		s.count(f, c, encode.S2)
	}
	if fresh, again := s.pageBytes(false), s.pageBytes(true); fresh > 200 || again < 1900 {
		t.Errorf("a new page is foreseen to take %.0f bytes, one that was written %.0f", fresh, again)
	}
}
