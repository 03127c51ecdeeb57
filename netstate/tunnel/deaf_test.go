package tunnel

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"godwit/internal/lasting/lastingtest"
)

// TestHeardAgain: a tunnel that could not take a connection, as its host had no descriptor left, is heard when there is one again:
// it would end by its lease else, and with it what it carries.
func TestHeardAgain(t *testing.T) {
	agent, ours := net.Pipe()
	defer agent.Close()
	host := lastingtest.New(ours, syscall.EMFILE, syscall.ENOMEM)
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
	host.Close()
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
