package guest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
)

// writing is a connection that tells when it is first written to.
type writing struct {
	net.Conn
	begun chan struct{}
	once  sync.Once
}

func (w *writing) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	return w.Conn.Write(p)
}

// TestSyncAfterOneGivenUp: a first call that is given up before a byte of it was written leaves the sync to the next,
// without which the guest's answers are nobody's.
func TestSyncAfterOneGivenUp(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	conn := &writing{Conn: here, begun: make(chan struct{})}
	client := newClient(conn)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- client.Call(ctx, "info", nil, nil) }() // nobody reads
	<-conn.begun
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it was given up", err)
	}
	go client.Call(t.Context(), "info", nil, nil) //nolint:errcheck // ended with the test
	line, err := newLines(there).Next()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := parseRequest(line); err != nil || r.Method != "sync" {
		t.Errorf("the guest hears %q first (%v), want a sync", line, err)
	}
}
