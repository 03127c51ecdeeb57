package lab

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

// leastOfPages is the least of a guest's memory that has these pages, at a host that has the others.
func leastOfPages(t *testing.T, memory, there [][]byte) int64 {
	t.Helper()
	dir, key := t.TempDir(), visit.Key{1}
	w, err := visit.Create(dir, key)
	if err != nil {
		t.Fatal(err)
	}
	for i, page := range memory {
		if err := w.Write(uint64(i), page); err != nil { //nolint:gosec // not negative
			t.Fatal(err)
		}
	}
	if err := w.Name("web.mem"); err != nil {
		t.Fatal(err)
	}
	left, err := visit.OpenKept(filepath.Join(dir, "web.mem"), key)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if err := os.WriteFile(filepath.Join(dir, "image"), bytes.Join(there, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := visit.Open(filepath.Join(dir, "image"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	least, err := leastBytes(t.Context(), left, image)
	if err != nil {
		t.Fatal(err)
	}
	return least
}

// TestLeastBytes: each content counts once, zeros and what is there not at all, and pages that are alike are small
// together.
func TestLeastBytes(t *testing.T) {
	random := rand.NewChaCha8([32]byte{7})
	noise := func() []byte {
		page := make([]byte, pages.Size)
		random.Read(page) //nolint:errcheck // it does not fail
		return page
	}
	zeros, one, other := make([]byte, pages.Size), noise(), noise()
	single := leastOfPages(t, [][]byte{one}, nil)
	if single < pages.Size || single > pages.Size+100 {
		t.Fatalf("a page that does not shrink takes %d bytes", single)
	}
	var many [][]byte
	for range 64 {
		many = append(many, one)
	}
	for name, c := range map[string]struct {
		memory, there [][]byte
		want          int64
	}{
		"nothing":                  {nil, nil, 0},
		"64 equal pages":           {many, nil, single},
		"zeros":                    {[][]byte{zeros, one, zeros}, nil, single},
		"a page of the image":      {[][]byte{one, other}, [][]byte{other}, single},
		"all of it is there":       {[][]byte{one, zeros, one}, [][]byte{zeros, one}, 0},
		"zeros of the image alone": {[][]byte{one}, [][]byte{zeros}, single},
	} {
		if got := leastOfPages(t, c.memory, c.there); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
	var text [][]byte
	for i := range 100 { // more than one batch
		text = append(text, bytes.Repeat(fmt.Appendf(nil, "%4d: it is alike. ", i), pages.Size)[:pages.Size])
	}
	if got, alone := leastOfPages(t, text, nil), leastOfPages(t, text[:1], nil); got <= 0 || got >= 100*alone {
		t.Errorf("100 pages that are alike take %d bytes, one %d", got, alone)
	}
}
