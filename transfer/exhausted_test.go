package transfer

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"godwit/internal/lasting/lastingtest"
)

// TestDiskIsHeardAgain: a disk's connection that comes as the host has no descriptor left is carried when there is one
// again. Without that the disk's path is gone, and no other comes by it.
func TestDiskIsHeardAgain(t *testing.T) {
	near, ours := net.Pipe()
	far, theirs := net.Pipe()
	p := &Plain{listener: lastingtest.New(ours, syscall.EMFILE, syscall.ENFILE), done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(t.Context())
	go p.run(func(context.Context, net.Conn) (net.Conn, io.Writer, error) { return theirs, nil, nil }, func() {})
	go near.Write([]byte("a")) //nolint:errcheck // who reads tells
	got := make(chan error, 1)
	go func() {
		_, err := far.Read(make([]byte, 1))
		got <- err
	}()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-p.done:
		t.Error("it hears nobody any more")
	}
	p.Close()
}

// TestWhoJoinsIsSentAwayAgain: so does the kernel take subflows where one could not be taken for a while.
func TestWhoJoinsIsSentAwayAgain(t *testing.T) {
	near, ours := net.Pipe()
	ln, left := lastingtest.New(ours, syscall.EMFILE, syscall.ENOMEM), make(chan struct{})
	go func() {
		defer close(left)
		sendAway(ln)
	}()
	away := make(chan error, 1)
	go func() {
		_, err := near.Read(make([]byte, 1))
		away <- err
	}()
	select {
	case err := <-away:
		if !errors.Is(err, io.EOF) {
			t.Errorf("it was not sent away: %v", err)
		}
	case <-left:
		t.Fatal("it listens no more")
	}
	ln.Close()
	<-left // as the listener is closed
}
