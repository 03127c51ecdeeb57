package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSyncSeldom: a guest that is copied for ten minutes has a few syncs to answer when it
// wakes, not one for every two seconds.
func TestSyncSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var asked atomic.Int64
		go func() {
			lines := newLines(far)
			for {
				line, err := lines.Next()
				if err != nil {
					return
				}
				if r, err := parseRequest(line); err == nil && r.Method == "sync" {
					asked.Add(1)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if c, err := NewClient(ctx, near); err == nil {
			c.Close()
			t.Fatal("nobody answered, and it is synced")
		}
		far.Close()
		if n := asked.Load(); n < 5 || n > 20 {
			t.Fatalf("asked %d times in ten minutes", n)
		}
	})
}

// TestOpenSaysNothingFirst: who opens a channel says nothing before the first call, which goes right
// behind the sync; and what the guest said before that is nobody's.
func TestOpenSaysNothingFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newClient(near)
		defer c.Close()
		lines := make(chan Request, 10)
		go func() {
			for read := newLines(far); ; {
				line, err := read.Next()
				if err != nil {
					return
				}
				if r, err := parseRequest(line); err == nil {
					lines <- r
				}
			}
		}()
		time.Sleep(10 * time.Minute) // the guest is being copied
		if len(lines) > 0 {
			t.Fatalf("it said %v", <-lines)
		}
		answer := make(chan error, 1)
		var said string
		go func() { answer <- c.Call(t.Context(), "echo", "a", &said) }()
		sync, call := <-lines, <-lines
		if sync.Method != "sync" || call.Method != "echo" {
			t.Fatalf("asked %s, then %s", sync.Method, call.Method)
		}
		for _, m := range []Message{{ID: call.ID, Result: json.RawMessage(`"before"`)}, {ID: sync.ID, Result: sync.Params}, {ID: call.ID, Result: json.RawMessage(`"after"`)}} {
			line, err := encode(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := far.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-answer; err != nil || said != "after" {
			t.Errorf("answer %q, %v", said, err)
		}
		time.Sleep(time.Minute)
		if c.failure() != nil {
			t.Errorf("a guest that has answered: %v", c.failure())
		}
	})
}

// TestOpenedButSilent: a guest that does not answer the sync is left, so that somebody dials it anew.
func TestOpenedButSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far) //nolint:errcheck // until it ends
		c := newClient(near)
		begun := time.Now()
		if err := c.Call(t.Context(), "echo", "a", nil); !errors.Is(err, ErrClosed) || time.Since(begun) != echoLimit {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
