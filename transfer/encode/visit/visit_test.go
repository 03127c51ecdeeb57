package visit_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

func page(b byte) []byte { return bytes.Repeat([]byte{b}, pages.Size) }

func hash(b byte) uint64 { return pages.Fast(page(b)) }

var key = visit.Key{1, 2, 3}

// kept writes pages, and names the file.
func kept(t *testing.T, dir string, contents map[uint64]byte) *visit.File {
	t.Helper()
	return written(t, dir, func(write func(n uint64, data []byte)) {
		for n, b := range contents {
			write(n, page(b))
		}
	})
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
	if m.Content(5001, data) == nil || m.Content(1003, data) == nil || m.Content(1<<60, data) == nil {
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
	w, err := visit.Create(dir, key)
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
	m := kept(t, dir, map[uint64]byte{0: 1, 1: 2, 2: 3})
	path := filepath.Join(dir, "web.mem")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4*pages.Size+100); err != nil { // in the middle of page 2
		t.Fatal(err)
	}
	whole[3*pages.Size+99] ^= 1 // of page 1
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	} else if _, err := f.WriteAt(whole[:4*pages.Size], 0); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if got := offers(t, m, 64, 64); len(got) != 1 || len(got[0].Hashes) != 1 || got[0].Hashes[0] != hash(1) {
		t.Errorf("offered %v", got)
	}
	data := make([]byte, pages.Size)
	if err := m.Content(0, data); err != nil {
		t.Error(err)
	}
	if m.Content(1, data) == nil || m.Content(2, data) == nil {
		t.Error("read what was damaged, or cut off")
	}
}

// A disk without its key tells nothing: neither what a page was, nor which are alike, nor
// what changed; and what was put at another place is not read there.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.mem")
	pieces := func() map[string]bool {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, page('x')[:16]) {
			t.Error("a page is to be read in the file")
		}
		out := map[string]bool{}
		for at := 2 * pages.Size; at+pages.Size <= len(data); at += pages.Size {
			out[string(data[at:at+pages.Size])] = true
		}
		return out
	}
	same := map[uint64]byte{0: 'x', 1: 'x', 2: 'x'}
	kept(t, dir, same)
	first := pieces()
	m := kept(t, dir, same)
	for piece := range pieces() {
		first[piece] = true
	}
	if len(first) != 6 {
		t.Errorf("%d of 6 pages of one content look different", len(first))
	}
	if _, err := visit.OpenKept(path, visit.Key{9}); !errors.Is(err, visit.ErrKey) {
		t.Errorf("opened with another key: %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(data[3*pages.Size:4*pages.Size], data[2*pages.Size:]) // page 0 to the place of page 1
	copy(data[pages.Size+32:pages.Size+64], data[pages.Size:])
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, pages.Size); m.Content(0, got) != nil || m.Content(1, got) == nil {
		t.Error("a page was read at the place of another")
	}
}

// written is what fill has written, opened again.
func written(t testing.TB, dir string, fill func(write func(n uint64, data []byte))) *visit.File {
	t.Helper()
	w, err := visit.Create(dir, key)
	if err != nil {
		t.Fatal(err)
	}
	fill(func(n uint64, data []byte) {
		if err := w.Write(n, data); err != nil {
			t.Fatal(err)
		}
	})
	if err := w.Name("web.mem"); err != nil {
		t.Fatal(err)
	}
	m, err := visit.OpenKept(filepath.Join(dir, "web.mem"), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// The newest of a page is kept, whatever was written between.
func TestNewestIsKept(t *testing.T) {
	m := written(t, t.TempDir(), func(write func(n uint64, data []byte)) {
		for b := byte(1); b <= 5; b++ {
			for _, n := range []uint64{7, 300, 8, 100_000} {
				write(n, page(b))
			}
		}
	})
	for _, n := range []uint64{7, 8, 300, 100_000} {
		if data := make([]byte, pages.Size); m.Content(n, data) != nil || !bytes.Equal(data, page(5)) {
			t.Errorf("page %d is an older one", n)
		}
	}
}

func TestKeyLasts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.key")
	if _, err := visit.ReadKey(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key before it was made: %v", err)
	}
	var keys []visit.Key
	for range 2 {
		if err := visit.MakeKey(path); err != nil {
			t.Fatal(err)
		}
		k, err := visit.ReadKey(path)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || keys[0] != keys[1] || keys[0] == (visit.Key{}) {
		t.Errorf("keys %x, %v", keys, err)
	}
}

// BenchmarkContent reads pages anywhere in what is kept, as a return does.
func BenchmarkContent(b *testing.B) {
	const total = 16 << 10
	m := written(b, b.TempDir(), func(write func(n uint64, data []byte)) {
		for n := range uint64(total) {
			write(n, page(byte(n)))
		}
	})
	b.SetBytes(pages.Size)
	data := make([]byte, pages.Size)
	for i := uint64(0); b.Loop(); i++ {
		if err := m.Content(i*7919%total, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	w, err := visit.Create(b.TempDir(), key)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	b.SetBytes(pages.Size)
	data := page(7)
	for n := uint64(0); b.Loop(); n++ {
		if err := w.Write(n%(64<<10), data); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRunsAreKeptWhole: pages that follow one another are written to the file together, in whatever pieces they come, over
// the end of a group, and with some of them once more.
func TestRunsAreKeptWhole(t *testing.T) {
	const count = 300
	contents := map[uint64]byte{}
	m := written(t, t.TempDir(), func(write func(n uint64, data []byte)) {
		b := byte(0)
		put := func(from, until uint64) {
			for n := from; n < until; n++ {
				b = b%250 + 1
				contents[n] = b
				write(n, page(b))
			}
		}
		put(0, count)
		put(40, 45)
		put(45, 47)
		put(44, 46)
		put(120, 140)
		put(127, 129)
		put(299, 300)
		put(0, 1)
	})
	data := make([]byte, pages.Size)
	for n, b := range contents {
		if err := m.Content(n, data); err != nil || !bytes.Equal(data, page(b)) {
			t.Errorf("page %d: %v, %d instead of %d", n, err, data[0], b)
		}
	}
	for i, b := range offers(t, m, count, count)[0].Hashes {
		if b != hash(contents[uint64(i)]) { //nolint:gosec // not negative
			t.Errorf("page %d is offered as another", i)
		}
	}
}
