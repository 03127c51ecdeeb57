package tunnel

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"godwit/internal/lasting/lastingtest"
	"godwit/netstate/internal/nettest"
)

// TestHeardAgain: a tunnel that could not take a connection, as its host had no descriptor left, is heard when there is
// one again: it would end by its lease else, and with it what it carries.
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

// TestNotSeenIsNotGone: a tunnel that stands is not taken down, to be made anew, where the host has nothing left to ask
// the kernel by.
func TestNotSeenIsNotGone(t *testing.T) {
	const none = "gwt-none"
	if Exists(none) || Exists("") || !Exists("lo") {
		t.Fatalf("exists: %v, %v, %v", Exists(none), Exists(""), Exists("lo"))
	}
	var unknown bool
	var aerr error
	if err := lastingtest.WithoutDescriptors(func() {
		unknown = Exists("lo")
		_, aerr = Astray()
	}); err != nil {
		t.Fatal(err)
	}
	if !unknown {
		t.Error("a device is gone that could not be asked for")
	}
	if aerr == nil {
		t.Error("no tunnel has a process, of those that could not be looked at")
	}
}

// TestNotSeenIsNotTakenDown: a tunnel whose device or process cannot be looked at just now was not taken down.
func TestNotSeenIsNotTakenDown(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", "link add gwt-unseen type bridge") // as there is in any kernel
	n.Run("h", "ip", "link", "set", "gwt-unseen", "alias", Alias+" unseen")
	over, cancel := context.WithCancel(t.Context()) // who takes it down has no time to ask its process
	cancel()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	dir := t.TempDir()
	n.Do("h", func() error {
		var down, gone error
		if err := lastingtest.WithoutDescriptors(func() { down, gone = Down(over, dir, "gwt-unseen"), vanish(soon, os.Getpid()) }); err != nil {
			return err
		}
		if down == nil {
			t.Error("its device is there, and it was taken down")
		}
		if gone == nil {
			t.Error("its process is gone, and it is this one")
		}
		if err := Down(over, dir, "gwt-unseen"); err != nil {
			t.Error(err)
		}
		if Exists("gwt-unseen") {
			t.Error("its device is left")
		}
		return nil
	})
}
