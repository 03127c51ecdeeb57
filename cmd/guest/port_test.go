package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPortWaitsInThePoller: whoever waits for a port is woken by what comes, and has no thread meanwhile.
func TestPortWaitsInThePoller(t *testing.T) {
	const ports = 40
	read := make(chan string, ports)
	var all []*port
	before := threads(t)
	for i := range ports {
		path := filepath.Join(t.TempDir(), "port"+strconv.Itoa(i))
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := newPort(path)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		all = append(all, p)
		go func() {
			b := make([]byte, 16)
			n, err := p.Read(b)
			if err != nil {
				t.Error(err)
			}
			read <- string(b[:n])
		}()
	}
	time.Sleep(50 * time.Millisecond) // all of them wait by then
	if now := threads(t); now-before > ports/2 {
		t.Errorf("%d threads for %d that wait", now-before, ports)
	}
	for _, p := range all {
		if _, err := p.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	for range ports {
		select {
		case got := <-read:
			if got != "hello" {
				t.Errorf("read %q", got)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("nobody is woken")
		}
	}
}

func threads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "Threads:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
