package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type state struct {
	Step int    `json:"step"`
	Text string `json:"text"`
}

// written is a journal with n states, closed.
func written(t *testing.T, n int) (dir, path string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "journal") // Create makes it
	j, err := Create(dir, "m-1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := j.Append(state{i + 1, "line\nbreak"}, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "m-1.journal")
}

func reopen(t *testing.T, dir string) (*File, state) {
	t.Helper()
	var s state
	j, err := Open(dir, "m-1", &s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, s
}

func TestRoundTrip(t *testing.T) {
	dir, path := written(t, 3)
	j, s := reopen(t, dir)
	if s != (state{3, "line\nbreak"}) {
		t.Fatalf("read back %+v", s)
	}
	if err := j.Append(state{Step: 4}, true); err != nil {
		t.Fatal(err)
	}
	if _, s = reopen(t, dir); s.Step != 4 {
		t.Fatalf("went on at %+v", s)
	}
	if mode := info(t, path).Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o: keys of tunnels may be in it", mode)
	}
}

func info(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	i, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// records are those of a journal, without its room.
func records(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimRight(data, "\x00")
}

// BenchmarkSync is what a record costs that must be on the disk: the last of a migration's
// nine, on a file system where others write.
func BenchmarkSync(b *testing.B) {
	dir := b.TempDir()
	s := state{Text: strings.Repeat("x", 2000)}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		j, err := Create(dir, fmt.Sprint("m-", i))
		for range 8 {
			err = errors.Join(err, j.Append(s, false))
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "other"), make([]byte, 64<<10), 0o600)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		err = j.Append(s, true)
		b.StopTimer()
		if err := errors.Join(err, j.Remove()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// TestFirst: whose a journal is, is known also where what follows is damaged, or of a later format; not where nothing
// is whole.
func TestFirst(t *testing.T) {
	for name, c := range map[string]struct {
		change func(data []byte) []byte
		want   int
	}{
		"as it is":          {func(data []byte) []byte { return data }, 1},
		"its last damaged":  {func(data []byte) []byte { return bytes.Replace(data, []byte(`{"N":3`), []byte(`{"N":9`), 1) }, 1},
		"its first damaged": {func(data []byte) []byte { return bytes.Replace(data, []byte(`{"N":1`), []byte(`{"N":9`), 1) }, 2},
		"a later format": {func(data []byte) []byte {
			return bytes.Replace(data, fmt.Appendf(nil, ":%d}", Version), []byte(":9}"), 1)
		}, 1},
		"nothing is whole": {func(data []byte) []byte { return bytes.ReplaceAll(data, []byte(`"N"`), []byte(`"M"`)) }, 0},
		"empty":            {func([]byte) []byte { return nil }, 0},
	} {
		dir := t.TempDir()
		j, err := Create(dir, "m-1")
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			if err := j.Append(struct{ N int }{n + 1}, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "m-1.journal")
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, c.change(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ N int }
		if err := First(dir, "m-1", &got); got.N != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: %d, %v; want %d", name, got.N, err, c.want)
		}
	}
}

func TestCreateTwice(t *testing.T) {
	dir, _ := written(t, 1)
	if j, err := Create(dir, "m-1"); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("%v, %v", j, err)
	}
	if _, s := reopen(t, dir); s.Step != 1 {
		t.Fatalf("the first is now %+v", s)
	}
	if _, err := Open(dir, "m-2", &state{}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open what is not there: %v", err)
	}
}

func TestUnfinished(t *testing.T) {
	if ids, err := Unfinished(filepath.Join(t.TempDir(), "none")); ids != nil || err != nil {
		t.Fatalf("no directory: %v, %v", ids, err)
	}
	dir, _ := written(t, 1)
	second, err := Create(dir, "m-2")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ids, err := Unfinished(dir)
	if err != nil || !slices.Equal(ids, []string{"m-1", "m-2"}) {
		t.Fatalf("%v, %v", ids, err)
	}
	if err := second.Remove(); err != nil {
		t.Fatal(err)
	}
	if ids, _ := Unfinished(dir); !slices.Equal(ids, []string{"m-1"}) {
		t.Fatalf("after one ended: %v", ids)
	}
}

func TestAppendRefused(t *testing.T) {
	dir, _ := written(t, 1)
	j, _ := reopen(t, dir)
	if err := j.Append(state{Text: strings.Repeat("x", recordLimit)}, false); err == nil {
		t.Error("a record past the limit was written")
	}
	if err := j.Append(func() {}, false); err == nil {
		t.Error("a function was written")
	}
	if err := j.Append(state{Step: 2}, false); err != nil {
		t.Fatal(err)
	}
	if _, s := reopen(t, dir); s.Step != 2 {
		t.Fatalf("%+v", s)
	}
}

// TestRepeatedRecord: what is said again and again, such as that a migration is in doubt,
// does not fill the journal until it cannot be read; and is on the disk once that is asked.
func TestRepeatedRecord(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	doubt, other := state{2, "in doubt"}, state{3, "something else"}
	for n := range 100000 {
		if err := j.Append(doubt, n >= 50000); err != nil {
			t.Fatal(err)
		}
	}
	if !j.synced {
		t.Error("it is not on the disk, and that was asked")
	}
	if size := info(t, path).Size(); size > 2*room {
		t.Fatalf("%d bytes", size)
	}
	for _, want := range []state{doubt, other, doubt} {
		if err := j.Append(want, false); err != nil {
			t.Fatal(err)
		}
		var s state
		if err := Read(dir, "m-1", &s); err != nil || s != want {
			t.Errorf("%+v, %v; want %+v", s, err, want)
		}
	}
}
