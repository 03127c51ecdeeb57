package guest

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// inTurn says what the guest hears, one request after the other.
func inTurn(t *testing.T, far net.Conn) func(method string) Request {
	t.Helper()
	lines := newLines(far)
	return func(method string) Request {
		t.Helper()
		for {
			line, err := lines.Next()
			if err != nil {
				t.Fatalf("%v, want that %s is asked", err, method)
			}
			if r, err := parseRequest(line); err == nil && r.Method != method {
				t.Fatalf("asked %s, want %s", r.Method, method)
			} else if err == nil {
				return r
			}
		}
	}
}

// say writes what a guest says on a line of its own.
func say(t *testing.T, far net.Conn, m Message) {
	t.Helper()
	line, err := encode(m)
	if err == nil {
		_, err = far.Write(append([]byte{'\n'}, line...))
	}
	if err != nil {
		t.Error(err)
	}
}

// TestBegunBeforeTheEcho: a program that is killed between reading the sync, and what came with it, and its answer,
// takes both along. The next one says that it has begun, and is asked both, however late it is.
func TestBegunBeforeTheEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newClient(near)
		defer c.Close()
		answer := make(chan error, 1)
		var said string
		go func() { answer <- c.Call(t.Context(), "echo", "a", &said) }()
		next := inTurn(t, far)
		next("sync")
		next("echo")
		time.Sleep(echoLimit * 3 / 4) // it is killed, and the next one started
		say(t, far, Message{Event: Event{Name: EventBegun}})
		sync, call := next("sync"), next("echo")
		time.Sleep(echoLimit * 3 / 4)
		say(t, far, Message{ID: sync.ID, Result: sync.Params})
		say(t, far, Message{ID: call.ID, Result: call.Params})
		if err := <-answer; err != nil || said != "a" {
			t.Errorf("%q, %v", said, err)
		}
		time.Sleep(2 * echoLimit)
		if c.failure() != nil {
			t.Errorf("a guest that has answered: %v", c.failure())
		}
	})
}

// TestBegunBeforeTheSync: a program that was started before the client spoke is told nothing before it is asked
// something; one that said so just before it read the sync is asked twice, which it sees to.
func TestBegunBeforeTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := newClient(near)
		say(t, far, Message{Event: Event{Name: EventBegun}})
		far.SetReadDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // it has one
		if n, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("it said %d bytes, %v", n, err)
		}
		far.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
		begun, answer := time.Now(), make(chan error, 1)
		var said string
		go func() { answer <- c.Call(t.Context(), "echo", "a", &said) }()
		synctest.Wait() // the sync and the call wait to be read
		ended := make(chan error, 1)
		go func() { ended <- NewServer(map[string]Handler{"echo": echo}).Serve(t.Context(), far, far) }()
		if err := <-answer; err != nil || said != "a" || time.Since(begun) != 0 {
			t.Errorf("after %v: %q, %v", time.Since(begun), said, err)
		}
		c.Close()
		far.Close()
		<-ended
	})
}
