package agent

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"godwit/agent/config"
)

// TestConsoleIsBounded: a guest fills no memory of its host by writing to its console; its last words are kept, and whoever writes
// goes on.
func TestConsoleIsBounded(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	write := func(name string, size int) *os.File {
		path := filepath.Join(a.guestDir(name, "1"), "serial.log")
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
	chatty, quiet := write("chatty", logMost+1<<20), write("quiet", 1<<20)
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
	}{{chatty, logKept + 64<<10}, {quiet, logMost}} {
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
