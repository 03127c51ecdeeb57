package mirror_test

import (
	"bytes"
	"testing"

	"godwit/transfer/encode/mirror"
	"godwit/transfer/pages"
)

func TestNewestWins(t *testing.T) {
	m, err := mirror.Create(t.TempDir(), 100)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	old, recent := bytes.Repeat([]byte{1}, pages.Size), bytes.Repeat([]byte{2}, pages.Size)
	got := make([]byte, pages.Size)
	for _, step := range []struct {
		version uint64
		data    []byte
		newer   bool
		want    []byte
		has     uint64
	}{
		{0, old, false, make([]byte, pages.Size), 0},
		{5, recent, true, recent, 5},
		{4, old, false, recent, 5},
		{5, old, false, recent, 5},
		{6, nil, true, make([]byte, pages.Size), 6},
		{5, recent, false, make([]byte, pages.Size), 6},
		{7, old, true, old, 7},
	} {
		newer, err := m.Write(99, step.version, step.data)
		if err != nil || newer != step.newer {
			t.Fatalf("write version %d: %v, %v", step.version, newer, err)
		}
		version, err := m.Read(99, got)
		if err != nil || version != step.has || !bytes.Equal(got, step.want) {
			t.Fatalf("after version %d: version %d, error %v, content as wanted %v", step.version, version, err, bytes.Equal(got, step.want))
		}
	}
	if _, err := m.Write(100, 1, nil); err == nil {
		t.Error("wrote page 100 of 100")
	}
	if _, err := m.Read(100, got); err == nil {
		t.Error("read page 100 of 100")
	}
}

// TestRoom: pages of zeros take none; nor does a mirror that is closed.
func TestRoom(t *testing.T) {
	m, err := mirror.Create(t.TempDir(), 100)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for page, data := range [][]byte{nil, bytes.Repeat([]byte{1}, pages.Size)} {
		if _, err := m.Write(uint64(page), 1, data); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
		if room := m.Room(); room < int64(len(data)) || data == nil && room != 0 || room > 16*pages.Size {
			t.Errorf("after page %d: %d bytes", page, room)
		}
	}
	m.Close()
	if room := m.Room(); room != 0 {
		t.Errorf("closed: %d bytes", room)
	}
}

// A look at a page gives what it holds, and an error where there is none.
func TestPeek(t *testing.T) {
	m, err := mirror.Create(t.TempDir(), 10)
	if err != nil {
		t.Fatal(err)
	}
	want, got := bytes.Repeat([]byte{7}, pages.Size), make([]byte, pages.Size)
	if _, err := m.Write(9, 1, want); err != nil {
		t.Fatal(err)
	}
	if err := m.Peek(9, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("page 9: %v", err)
	}
	if m.Peek(10, got) == nil {
		t.Error("saw page 10 of 10")
	}
	m.Close()
	if m.Peek(9, got) == nil {
		t.Error("saw a page of a mirror that was closed")
	}
}

// TestRunOfWhichSomeAreNewer: of pages that are written together each has the version that is its own.
func TestRunOfWhichSomeAreNewer(t *testing.T) {
	const first, count = 60, 30 // over the end of the locks, and of what a word has
	m, err := mirror.Create(t.TempDir(), first+count)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	filled := func(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n*pages.Size) }
	later := map[uint64][]byte{first + 3: filled(9, 1), first + 4: nil, first + 20: filled(8, 1)}
	for page, data := range later {
		if newer, err := m.Write(page, 7, data); err != nil || !newer {
			t.Fatalf("page %d: %v, %v", page, newer, err)
		}
	}
	newer, err := m.WriteRun(first, 5, filled(1, count))
	if want := uint64(1<<count-1) &^ (1<<3 | 1<<4 | 1<<20); err != nil || newer != want {
		t.Fatalf("newer are %b, %v, want %b", newer, err, want)
	}
	got := make([]byte, pages.Size)
	for page := uint64(first); page < first+count; page++ {
		want, has := filled(1, 1), uint64(5)
		if data, ok := later[page]; ok {
			want, has = append(data, make([]byte, pages.Size-len(data))...), 7
		}
		if version, err := m.Read(page, got); err != nil || version != has || !bytes.Equal(got, want) {
			t.Errorf("page %d has version %d of %d, %v", page, version, got[0], err)
		}
	}
	if _, err := m.WriteRun(first, 8, filled(1, count+1)); err == nil {
		t.Error("wrote beyond the end")
	}
}
