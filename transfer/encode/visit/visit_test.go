package visit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

func page(b byte) []byte { return bytes.Repeat([]byte{b}, pages.Size) }

func hash(b byte) uint64 { return pages.Fast(page(b)) }

// kept writes pages, and names the file.
func kept(t *testing.T, dir string, contents map[uint64]byte) *visit.File {
	t.Helper()
	w, err := visit.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n, b := range contents {
		if err := w.Write(n, page(b)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Name("web.mem"); err != nil {
		t.Fatal(err)
	}
	m, err := visit.Open(filepath.Join(dir, "web.mem"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

type run struct {
	First  uint64
	Hashes []uint64
}

func offers(t *testing.T, m *visit.File, most, total int) (out []run) {
	t.Helper()
	err := m.Hashes(t.Context(), most, total, func(first uint64, hashes []uint64) bool {
		out = append(out, run{first, hashes})
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatIsKeptIsOffered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "visits")
	// Far apart, so that there are holes between on every file system.
	m := kept(t, dir, map[uint64]byte{1000: 1, 1001: 0, 1002: 2, 1010: 4, 5000: 3})
	got := map[uint64]uint64{}
	for _, r := range offers(t, m, 2, 100) {
		if len(r.Hashes) > 2 {
			t.Errorf("%d contents at once", len(r.Hashes))
		}
		for i, b := range r.Hashes {
			if b != 0 {
				got[r.First+uint64(i)] = b
			}
		}
	}
	if diff := cmp.Diff(map[uint64]uint64{1000: hash(1), 1002: hash(2), 1010: hash(4), 5000: hash(3)}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(offers(t, m, 64, 100)); n > 2 {
		t.Errorf("%d runs; a narrow hole splits one", n)
	}
	some := 0
	for _, r := range offers(t, m, 64, 3) {
		some += len(r.Hashes)
	}
	if some != 3 {
		t.Errorf("%d contents, want 3 at the most", some)
	}
	data := make([]byte, pages.Size)
	if err := m.Content(1002, data); err != nil || !bytes.Equal(data, page(2)) {
		t.Errorf("content 1002: %v", err)
	}
	if m.Content(5001, data) == nil || m.Content(1<<60, data) == nil {
		t.Error("read what is not there")
	}
}

// A guest that leaves again replaces what was kept before; one that stays leaves nothing.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	kept(t, dir, map[uint64]byte{0: 1})
	again := kept(t, dir, map[uint64]byte{0: 2})
	data := make([]byte, pages.Size)
	if err := again.Content(0, data); err != nil || data[0] != 2 {
		t.Errorf("content %d, %v", data[0], err)
	}
	w, err := visit.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(1, page(3)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if w.Name("late.mem") == nil {
		t.Error("named after it was given up")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "web.mem" {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A file that was cut or overwritten offers what it has.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	m := kept(t, dir, map[uint64]byte{0: 1, 1: 2})
	if err := os.Truncate(filepath.Join(dir, "web.mem"), pages.Size+100); err != nil {
		t.Fatal(err)
	}
	offers(t, m, 64, 64) // says what it read
	if m.Content(1, make([]byte, pages.Size)) == nil {
		t.Error("read what was cut off")
	}
}
