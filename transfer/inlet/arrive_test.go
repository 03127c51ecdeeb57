package inlet

import (
	"net"
	"syscall"
	"testing"
	"time"

	"godwit/internal/lasting/lastingtest"
)

// TestHeardAgain: an inlet that could not take a client, as its host had no descriptor left, takes the next: its guest
// would wait for ever for what only another client can bring.
func TestHeardAgain(t *testing.T) {
	client := new(net.UnixConn)
	host := lastingtest.New(client, syscall.EMFILE, syscall.ENOMEM)
	arrivals, left := make(chan *net.UnixConn), make(chan struct{})
	go func() {
		defer close(left)
		arrive(host, arrivals, make(chan struct{}))
	}()
	select {
	case conn := <-arrivals:
		if conn != client {
			t.Error("another client")
		}
	case <-left:
		t.Fatal("it listens no more")
	}
	host.Close()
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on after its end")
	}
}
