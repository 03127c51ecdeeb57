package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestGoldenBytes: journals outlive upgrades, so the format is written out here.
func TestGoldenBytes(t *testing.T) {
	dir, path := written(t, 1)
	const first, second, state = "07e5637b {\"godwit_journal\":1}\n", "3302cbe2 {\"godwit_journal\":2}\n", "0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n"
	got, err := os.ReadFile(path)
	if after := strings.TrimPrefix(string(got), second+state); err != nil || len(got) < room || strings.Trim(after, "\x00") != "" {
		t.Fatalf("wrote %.100q, %d bytes, want %q and zeros", got, len(got), second+state)
	}
	for _, head := range []string{first, second} {
		if err := os.WriteFile(path, []byte(head+state), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, s := reopen(t, dir); s.Step != 1 {
			t.Fatalf("read %+v", s)
		}
	}
}

// TestCutOff: wherever a crash cuts the last record, the one before it is the state,
// and the journal goes on from there.
func TestCutOff(t *testing.T) {
	dir, path := written(t, 3)
	whole := records(t, path)
	kept := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for cut := kept; cut < len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, s := reopen(t, dir)
		if s.Step != 2 {
			t.Fatalf("cut at %d of %d: %+v", cut, len(whole), s)
		}
		if err := j.Append(state{Step: 9}, false); err != nil {
			t.Fatal(err)
		}
		if _, s := reopen(t, dir); s.Step != 9 {
			t.Fatalf("cut at %d, gone on: %+v", cut, s)
		}
		j.Close()
	}
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

// TestCutOffInItsRoom: a host that loses its power leaves any of a record's sectors in the
// room of the journal, and zeros for the rest. The record before it is the state, and what
// comes next is not glued to what was left.
func TestCutOffInItsRoom(t *testing.T) {
	dir, path := written(t, 3)
	whole := records(t, path)
	kept := bytes.LastIndexByte(whole[:len(whole)-1], '\n') + 1
	for from := kept; from < len(whole); from++ {
		for _, to := range []int{from + 1, (from + len(whole)) / 2, len(whole)} {
			data := append(slices.Clone(whole), make([]byte, 4096)...)
			clear(data[from:max(to, from+1)])
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			j, s := reopen(t, dir)
			if s.Step != 2 {
				t.Fatalf("zeros from %d to %d of %d: %+v", from, to, len(whole), s)
			}
			if err := j.Append(state{Step: 9}, false); err != nil {
				t.Fatal(err)
			}
			if _, s := reopen(t, dir); s.Step != 9 {
				t.Fatalf("zeros from %d to %d, gone on: %+v", from, to, s)
			}
			j.Close()
		}
	}
}

// TestGrows: more records than there was room for.
func TestGrows(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	for i := range 2*room/1000 + 1 {
		if err := j.Append(state{Step: i, Text: strings.Repeat("x", 1000)}, i%100 == 0); err != nil {
			t.Fatal(err)
		}
		if _, s := reopen(t, dir); s.Step != i {
			t.Fatalf("read %d, want %d", s.Step, i)
		}
	}
	if size := info(t, path).Size(); size < 2*room || size > 5*room {
		t.Errorf("%d bytes", size)
	}
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

// TestFirst: whose a journal is, is known also where what follows is damaged, or of a later format; not where nothing is whole.
func TestFirst(t *testing.T) {
	for name, c := range map[string]struct {
		change func(data []byte) []byte
		want   int
	}{
		"as it is":          {func(data []byte) []byte { return data }, 1},
		"its last damaged":  {func(data []byte) []byte { return bytes.Replace(data, []byte(`{"N":3}`), []byte(`{"N":9}`), 1) }, 1},
		"its first damaged": {func(data []byte) []byte { return bytes.Replace(data, []byte(`{"N":1}`), []byte(`{"N":9}`), 1) }, 2},
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

func TestUnreadable(t *testing.T) {
	line := func(body string) string {
		return fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(body), table), body)
	}
	head, one, two := line(`{"godwit_journal":1}`), line(`{"step":1}`), line(`{"step":2}`)
	for _, c := range []struct{ name, data, want string }{
		{"nothing in it", "", "no state"},
		{"no state yet", head, "no state"},
		{"its first state cut off", head + one[:15], "no state"},
		{"a flipped bit in the middle", head + strings.Replace(one, "1}", "3}", 1) + two, "record 1: checksum"},
		{"a flipped bit in a whole last record", head + one + strings.Replace(two, "2}", "3}", 1), "record 2: checksum"},
		{"a record in the middle cut off", head + one[:15] + two, "record 1: "},
		{"zeros in a record in the middle", head + one[:15] + "\x00\x00" + one[17:] + two, "record 1: "},
		{"zeros for a record in the middle", head + strings.Repeat("\x00", len(one)) + two + two, "record 1: "},
		{"an empty line", head + one + "\n" + two, "record 2: not a record"},
		{"a checksum that is no number", head + "zzzzzzzz {}\n", "record 1: not a record"},
		{"a checksum that is short", head + "   ff16a {}\n", "record 1: not a record"},
		{"too long", head + line(`"`+strings.Repeat("x", recordLimit)+`"`), "record 1: not a record"},
		{"a newer format", line(`{"godwit_journal":3}`) + one, "written by a newer godwit (format 3, this one knows 2)"},
		{"a newer format with records of another form", line(`{"godwit_journal":3}`) + "binary\n", "newer godwit"},
		{"no version", one + two, "no format version"},
		{"a version that is none", line(`{"godwit_journal":-1}`) + one, "no format version"},
		{"a state of another form", head + line(`{"step":"one"}`), "cannot unmarshal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m-1.journal")
			if err := os.WriteFile(path, []byte(c.data), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := Open(dir, "m-1", &state{})
			if err == nil {
				j.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: want one line that has %q and the path", err, c.want)
			}
			if after, _ := os.ReadFile(path); string(after) != c.data {
				t.Error("a journal that was not understood was changed")
			}
		})
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

// TestDiskFull: a record that went in half is taken back, so that the next one is
// not glued to it.
func TestDiskFull(t *testing.T) {
	dir, path := written(t, 1)
	whole := records(t, path)
	if err := os.WriteFile(path, whole, 0o600); err != nil { // no room is left
		t.Fatal(err)
	}
	j, _ := reopen(t, dir)
	limit(t, uint64(len(whole))+20, func() {
		if err := j.Append(state{Step: 2, Text: strings.Repeat("x", 100)}, false); !errors.Is(err, unix.EFBIG) {
			t.Fatalf("written past the limit: %v", err)
		}
	})
	if err := j.Append(state{Step: 3}, true); err != nil {
		t.Fatal(err)
	}
	if _, s := reopen(t, dir); s.Step != 3 {
		t.Fatalf("%+v", s)
	}
}

// TestReserve: who asks for more room than the disk has leaves what there is to who needs it.
func TestReserve(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	whole, info := len(records(t, path)), stat(t, path)
	limit(t, uint64(info.Size()), func() { //nolint:gosec // a file's size
		if err := j.Reserve(room / 2); err != nil {
			t.Errorf("room that is there: %v", err)
		}
		if err := j.Reserve(room); !errors.Is(err, unix.EFBIG) {
			t.Errorf("room that is not there: %v", err)
		}
		for step := 2; len(records(t, path)) < whole+room/2; step++ {
			if err := j.Append(state{Step: step, Text: strings.Repeat("x", 1000)}, true); err != nil {
				t.Fatalf("step %d, in the room that there was: %v", step, err)
			}
		}
	})
	if err := j.Reserve(2 * room); err != nil || stat(t, path).Size() < info.Size()+room {
		t.Errorf("room on a disk that has it: %v, %d bytes", err, stat(t, path).Size())
	}
}

// TestShorterRecord: where the disk has no room for a record, a shorter one still has the room that was made before: a refusal, after all that a
// guest's report has.
func TestShorterRecord(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	limit(t, uint64(stat(t, path).Size()), func() { //nolint:gosec // a file's size
		if err := j.Append(state{Step: 2, Text: strings.Repeat("x", 2*room)}, true); !errors.Is(err, unix.EFBIG) {
			t.Fatalf("written past the limit: %v", err)
		}
		if err := j.Append(state{Step: 3}, true); err != nil {
			t.Fatal(err)
		}
	})
	if _, s := reopen(t, dir); s.Step != 3 {
		t.Fatalf("%+v", s)
	}
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// limit bounds the size of files that this process writes, bytes, while f runs
// (setrlimit(2), RLIMIT_FSIZE; Go ignores SIGXFSZ).
func limit(t *testing.T, size uint64, f func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// FuzzLastRecord: no bytes make it panic or read past them; what it calls valid is
// valid again by itself and gives the same state.
func FuzzLastRecord(f *testing.F) {
	f.Add([]byte("07e5637b {\"godwit_journal\":1}\n0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n"))
	f.Add([]byte("07e5637b {\"godwit_journal\":1}\n0cdf86e0 {\"st"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n\x00\x00\x00\x00"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n0cdf86e0 {\"st\x00\x00\x00\n\x00"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		last, length, err := lastRecord(data)
		if err != nil {
			if last != nil || length != 0 {
				t.Fatalf("%v with a record %q of %d", err, last, length)
			}
			return
		}
		torn, _, whole := bytes.Cut(data[min(length, len(data)):], []byte("\n"))
		if length > len(data) || length > 0 && data[length-1] != '\n' || whole && bytes.IndexByte(torn, 0) < 0 {
			t.Fatalf("valid up to %d of %d", length, len(data))
		}
		again, same, err := lastRecord(data[:length])
		if err != nil || same != length || !bytes.Equal(last, again) {
			t.Fatalf("%q of %d, then %q of %d: %v", last, length, again, same, err)
		}
	})
}

// TestRepeatedRecord: what is said again and again, such as that a migration is in doubt,
// does not fill the journal until it cannot be read; and is on the disk once that is asked.
func TestRepeatedRecord(t *testing.T) {
	dir, path := written(t, 1)
	j, _ := reopen(t, dir)
	doubt, other := state{2, "in doubt"}, state{3, "something else"}
	for n := range 100000 {
		if err := j.Append(doubt, n == 500); err != nil {
			t.Fatal(err)
		}
	}
	if !j.synced {
		t.Error("it is not on the disk, and that was asked")
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*room {
		t.Fatalf("%d bytes, %v", info.Size(), err)
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
