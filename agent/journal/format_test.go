package journal

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoldenBytes: journals outlive upgrades, so the format is written out here. Older agents do not say what is on the
// disk, and read past it.
func TestGoldenBytes(t *testing.T) {
	dir, path := written(t, 1)
	const first, second = "07e5637b {\"godwit_journal\":1}\n", "3302cbe2 {\"godwit_journal\":2}\n"
	const older, state = "0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n", "70d894dd {\"step\":1,\"text\":\"line\\nbreak\",\"on_disk\":30}\n"
	got, err := os.ReadFile(path)
	if after := strings.TrimPrefix(string(got), second+state); err != nil || len(got) < room || strings.Trim(after, "\x00") != "" {
		t.Fatalf("wrote %.100q, %d bytes, want %q and zeros", got, len(got), second+state)
	}
	for _, whole := range []string{first + older, second + older, second + state, second + older + state} {
		if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, s := reopen(t, dir); s.Step != 1 {
			t.Fatalf("read %+v", s)
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

// FuzzLastRecord: no bytes make it panic or read past them; what it calls valid is
// valid again by itself and gives the same state.
func FuzzLastRecord(f *testing.F) {
	f.Add([]byte("07e5637b {\"godwit_journal\":1}\n0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n"))
	f.Add([]byte("07e5637b {\"godwit_journal\":1}\n0cdf86e0 {\"st"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n0cdf86e0 {\"step\":1,\"text\":\"line\\nbreak\"}\n\x00\x00\x00\x00"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n0cdf86e0 {\"st\x00\x00\x00\n\x00"))
	f.Add([]byte("3302cbe2 {\"godwit_journal\":2}\n\x00cdf86e0 {\"st\x00\x00\x00\n\x00\n0cdf86e0 {\"st\x00\n"))
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
