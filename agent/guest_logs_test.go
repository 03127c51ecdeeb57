package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
)

// TestConsoleIsBounded: a guest fills no memory of its host by writing to its console, nor does a tunnel by its log; the last words are kept,
// and whoever writes goes on.
func TestConsoleIsBounded(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.config.Run += "/[run]" // is no pattern
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
	console := func(guest string) string { return filepath.Join(a.guestDir(guest, "1"), "serial.log") }
	chatty, quiet := write(console("chatty"), logMost+1<<20), write(console("quiet"), 1<<20)
	tunnel := write(filepath.Join(a.tunnelDir(), "gwt-00000001.log"), logMost+1<<20)
	if err := os.Symlink(chatty.Name(), filepath.Join(a.guestDir("quiet", "1"), "other.log")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*logLook)
		defer cancel()
		a.boundLogs(ctx)
	})
	for _, c := range []struct {
		f    *os.File
		most int64 // bytes on the disk
	}{{chatty, logKept + 64<<10}, {quiet, logMost}, {tunnel, logKept + 64<<10}} {
		if _, err := c.f.WriteString(", and more"); err != nil {
			t.Fatal(err)
		}
		info, err := c.f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		end, err := readEnd(c.f.Name(), logKept)
		if took := info.Sys().(*syscall.Stat_t).Blocks * 512; took > c.most || err != nil || !bytes.HasSuffix(end, []byte("xxxlast words, and more")) || bytes.IndexByte(end, 0) >= 0 {
			t.Errorf("%s takes %d bytes, and ends in %q, %v", c.f.Name(), took, end[max(0, len(end)-40):], err)
		}
	}
}

// TestKeptLogsAreBounded: what guests that left have said fills no disk, however often they come and go; the newest is kept, and what people
// put beside it. So it is where the others were written by a clock that was years ahead.
func TestKeptLogsAreBounded(t *testing.T) {
	t.Run("a clock that is right", func(t *testing.T) { keptLogsAreBounded(t, 0) })
	t.Run("a clock that was ahead", func(t *testing.T) { keptLogsAreBounded(t, 2*365*24*time.Hour) })
}

func keptLogsAreBounded(t *testing.T, ahead time.Duration) {
	t.Helper()
	a := bareAgent(t, &config.Config{Host: "paris"})
	dir := a.config.StatePath("logs")
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
	for n := range keptMost/logKept + more {
		write(filepath.Join(dir, fmt.Sprintf("web-%d-serial.log", n)), logKept, time.Hour-time.Duration(n)*time.Second-ahead)
	}
	write(filepath.Join(dir, "notes.log"), logKept, 24*time.Hour)
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Dir: a.guestDir("web", "9999")}}
	write(filepath.Join(g.Held.Dir, "serial.log"), 2*logKept, 0)
	a.dismantle(g)
	left := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left[e.Name()] = true
	}
	if len(left) != keptMost/logKept+1 || !left["notes.log"] || !left["web-9999-serial.log"] || left[fmt.Sprintf("web-%d-serial.log", more)] || !left[fmt.Sprintf("web-%d-serial.log", more+1)] {
		t.Errorf("%d left", len(left))
	}
}
