package agent

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestSocketAnswersOnceItIsThere: who sees an agent's socket is not refused there, however soon it asks.
func TestSocketAnswersOnceItIsThere(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	for range 500 {
		refused := make(chan error, 1)
		go func() {
			for {
				conn, err := net.Dial("unix", socket)
				if err == nil {
					conn.Close()
				}
				if !errors.Is(err, fs.ErrNotExist) {
					refused <- err
					return
				}
			}
		}()
		ln, err := listenUnix(socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-refused; err != nil {
			t.Fatal(err)
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Fatal(left, err)
		}
	}
}
