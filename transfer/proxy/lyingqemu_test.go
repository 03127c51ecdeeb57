package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/transfer/proxy"
)

// word is one of eight bytes in QEMU's stream.
func word(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// TestLyingQEMU: a stream that cannot be, or ends too early, ends both ends with one error. QEMU is hung up on, by which its
// migration fails and its guest runs on, and nothing is left.
func TestLyingQEMU(t *testing.T) {
	const (
		head   = "QEVM\x00\x00\x00\x03\x07\x00\x00\x00\x02pc\x08\x00\x01\x00\x00"
		start  = "\x01\x00\x00\x00\x02\x03ram\x00\x00\x00\x00\x00\x00\x00\x04"
		part   = "\x02\x00\x00\x00\x02"
		footer = "\x7e\x00\x00\x00\x02"
	)
	memory := start + word(1<<12|4) + "\x03ram" + word(1<<12) + word(0x10) + footer
	end := "\x03\x00\x00\x00\x02" + word(0x10) + footer
	for name, c := range map[string]struct {
		begun bool // as a stream should
		say   string
		over  bool // it ends there
		want  string
	}{
		"noise":                        {false, "GET / HTTP/1.1\r\n\r\n", false, "no migration stream of QEMU"},
		"a prologue beyond all bounds": {false, head + strings.Repeat("\x08\x00\x02\x00\x04\x00\x00\x00\x01", 30_000) + memory, false, "prologue of 2"},
		"memory beyond all bounds":     {false, head + start + word(1<<60|4), false, "bytes of memory"},
		"a second stream":              {true, head, false, "section type 0x51"},
		"a page of no block":           {true, part + word(8) + "\x03cdr", false, `block "cdr", which is none`},
		"a page that is nowhere":       {true, part + word(1<<40|8) + "\x03ram", false, "a page at 0x10000000000"},
		"what was turned off":          {true, part + word(0x40), false, "xbzrle, which is not supported"},
		"half a page":                  {true, part + word(8) + "\x03ram half", true, "unexpected EOF"},
		"no devices":                   {true, end, true, "unexpected EOF"},
		"devices of many ends":         {true, end + strings.Repeat("\x00\x06\x01\x00\x00\x00{\"", 65), false, "looks like its end"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t)
			if c.begun {
				if err := errors.Join(f.from.w.Begin(), f.from.w.Page(1, bytes.Repeat([]byte("memory"), 4096)[:4096]), f.from.w.EndPart()); err != nil {
					t.Fatal(err)
				}
			}
			f.until(t, func() bool {
				s := f.src.Stats()
				return s.LanesLive == len(f.uplinks) && (!c.begun || s.Stats.Acked > 0)
			})
			f.from.conn.Write([]byte(c.say)) //nolint:errcheck // it is hung up on
			if c.over {
				f.from.conn.Close()
			}
			f.until(t, func() bool { return f.src.Err() != nil && f.dst.Err() != nil })
			here, there := f.src.Err().Error(), f.dst.Err().Error()
			if !strings.Contains(here, c.want) || !strings.HasPrefix(there, "the other end: ") || !strings.Contains(there, c.want) || strings.Contains(here+there, "\n") {
				t.Errorf("source: %s; destination: %s; want %q", here, there, c.want)
			}
			if gone := (*proxy.QEMUError)(nil); c.over && !errors.As(f.src.Err(), &gone) {
				t.Errorf("%v is not said to be QEMU's", f.src.Err())
			}
			if _, err := f.from.conn.Write([]byte{0}); err == nil {
				t.Error("QEMU is heard still")
			}
			nothingLeft(t, f.dir, "out")
		})
	}
}

// until waits for something.
func (f *fakes) until(t *testing.T, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(hang); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("source %v, destination %v, %+v", f.src.Err(), f.dst.Err(), f.src.Stats())
		}
	}
}

// nothingLeft sees that this process has no file open below a folder, and that nobody would hear QEMU at a socket there.
func nothingLeft(t *testing.T, dir, socket string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(dir, socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what QEMU was to find: %v", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(file, dir+"/") {
			t.Errorf("%s is open still", file)
		}
	}
}
