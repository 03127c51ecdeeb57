package tunnel

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// exhausted is a listener of a host that has no descriptor left for a while.
type exhausted struct {
	net.Listener
	accepts chan error // what is to come of each; nil: a connection
	conns   chan net.Conn
}

func (e exhausted) Accept() (net.Conn, error) {
	err, more := <-e.accepts
	switch {
	case !more:
		return nil, net.ErrClosed
	case err != nil:
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
	}
	return <-e.conns, nil
}

// TestHeardAgain: a tunnel that could not take a connection, as its host had no descriptor left, is heard when there is one again:
// it would end by its lease else, and with it what it carries.
func TestHeardAgain(t *testing.T) {
	host := exhausted{accepts: make(chan error, 3), conns: make(chan net.Conn, 1)}
	for _, err := range []error{syscall.EMFILE, syscall.ENOMEM, nil} {
		host.accepts <- err
	}
	agent, ours := net.Pipe()
	defer agent.Close()
	host.conns <- ours
	k, left := &keeper{asks: make(chan func())}, make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
	defer cancel()
	go func() {
		defer close(left)
		k.listen(ctx, host)
	}()
	said := make(chan error, 1)
	go func() {
		_, err := agent.Write([]byte(`{"op":"status"}` + "\n"))
		said <- errors.Join(err, agent.SetReadDeadline(time.Now().Add(20*time.Second)))
	}()
	select {
	case ask := <-k.asks:
		go ask()
		if n, err := agent.Read(make([]byte, 4096)); n == 0 {
			t.Errorf("no answer: %v", err)
		}
	case <-left:
		t.Fatal("it listens no more")
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
	close(host.accepts)
	<-left // as the listener is closed
}

// TestNotSeenIsNotGone: a tunnel that stands is not taken down, to be made anew, where the host has nothing left to ask the kernel by.
func TestNotSeenIsNotGone(t *testing.T) {
	const none = "gwt-none"
	if Exists(none) || Exists("") || !Exists("lo") {
		t.Fatalf("exists: %v, %v, %v", Exists(none), Exists(""), Exists("lo"))
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	unknown := Exists("lo")
	_, aerr := Astray(t.TempDir())
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if !unknown {
		t.Error("a device is gone that could not be asked for")
	}
	if aerr == nil {
		t.Error("no tunnel has a process, of those that could not be looked at")
	}
}
