package logs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestConsoleIsBounded: a guest fills no memory of its host by writing to its console, nor does a tunnel by its log;
// the last words are kept, and whoever writes goes on.
func TestConsoleIsBounded(t *testing.T) {
	run := t.TempDir() + "/[run]" // is no pattern
	guests, tunnels := filepath.Join(run, "guests"), filepath.Join(run, "tunnels")
	write := func(path string, size int) *os.File {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		for left := size; left > 0; left -= 1 << 20 {
			if _, err := f.Write(bytes.Repeat([]byte("x"), min(left, 1<<20))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.WriteString("last words"); err != nil {
			t.Fatal(err)
		}
		return f
	}
	console := func(guest string) string { return filepath.Join(guests, guest+"-1", "serial.log") }
	chatty, quiet := write(console("chatty"), most+1<<20), write(console("quiet"), 1<<20)
	tunnel := write(filepath.Join(tunnels, "gwt-00000001.log"), most+1<<20)
	if err := os.Symlink(chatty.Name(), filepath.Join(guests, "quiet-1", "other.log")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*look)
		defer cancel()
		Bound(ctx, guests, tunnels, slog.New(slog.DiscardHandler))
	})
	for _, c := range []struct {
		f    *os.File
		most int64 // bytes on the disk
	}{{chatty, kept + 64<<10}, {quiet, most}, {tunnel, kept + 64<<10}} {
		if _, err := c.f.WriteString(", and more"); err != nil {
			t.Fatal(err)
		}
		info, err := c.f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		end, err := End(c.f.Name(), kept)
		if took := info.Sys().(*syscall.Stat_t).Blocks * 512; took > c.most || err != nil || !bytes.HasSuffix(end, []byte("xxxlast words, and more")) || bytes.IndexByte(end, 0) >= 0 {
			t.Errorf("%s takes %d bytes, and ends in %q, %v", c.f.Name(), took, end[max(0, len(end)-40):], err)
		}
	}
}

// TestKeptLogsAreBounded: what guests that left have said fills no disk, however often they come and go; the newest is
// kept, and what people put beside it. So it is where the others were written by a clock that was years ahead.
func TestKeptLogsAreBounded(t *testing.T) {
	t.Run("a clock that is right", func(t *testing.T) { keptLogsAreBounded(t, 0) })
	t.Run("a clock that was ahead", func(t *testing.T) { keptLogsAreBounded(t, 2*365*24*time.Hour) })
}

func keptLogsAreBounded(t *testing.T, ahead time.Duration) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "logs")
	write := func(path string, size int64, ago time.Duration) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("words"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	const more = 20
	for n := range keptMost/kept + more {
		write(filepath.Join(dir, fmt.Sprintf("web-%d-serial.log", n)), kept, time.Hour-time.Duration(n)*time.Second-ahead)
	}
	write(filepath.Join(dir, "notes.log"), kept, 24*time.Hour)
	guest := filepath.Join(t.TempDir(), "web-9999")
	write(filepath.Join(guest, "serial.log"), 2*kept, 0)
	Keep(guest, dir, slog.New(slog.DiscardHandler))
	left := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left[e.Name()] = true
	}
	if len(left) != keptMost/kept+1 || !left["notes.log"] || !left["web-9999-serial.log"] || left[fmt.Sprintf("web-%d-serial.log", more)] || !left[fmt.Sprintf("web-%d-serial.log", more+1)] {
		t.Errorf("%d left", len(left))
	}
}

// TestEndOfALog: a guest that floods its console does not fill the agent's memory with it.
func TestEndOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		size int64
		want string
	}{{0, ""}, {3, "end"}, {1 << 34, "\x00\x00end"}} { // sparse
		if _, err := f.WriteAt([]byte("end"), max(0, c.size-3)); c.size > 0 && err != nil {
			t.Fatal(err)
		} else if c.size == 0 {
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
		if end, err := End(path, 5); err != nil || string(end) != c.want {
			t.Errorf("%d bytes: %q, %v; want %q", c.size, end, err, c.want)
		}
	}
}
