package guest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"
)

// port is a virtio-serial port in small: it outlives the hosts that connect to it,
// and keeps what the last one left in it.
type port struct {
	toGuest, toHost *io.PipeWriter
	guestReads      *io.PipeReader
	hostReads       *io.PipeReader

	piece  int           // bytes that come at a time; 0: one, so that lines break anywhere
	left   string        // by the last host: the next one reads it first
	copied chan struct{} // closed when the last host's copying has ended
}

func newPort() *port {
	p := &port{}
	p.guestReads, p.toGuest = io.Pipe()
	p.hostReads, p.toHost = io.Pipe()
	return p
}

// connect gives a host its end; closing it leaves the port open.
func (p *port) connect(t *testing.T) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(p.toGuest, far) }()
	copied, left := make(chan struct{}), p.left
	p.copied, p.left = copied, ""
	go func() {
		defer close(copied)
		_, _ = io.WriteString(far, left)
		buffer := make([]byte, max(p.piece, 1))
		for {
			n, err := p.hostReads.Read(buffer)
			if err != nil {
				far.Close()
				return
			}
			if _, err := far.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	return near
}

// drain ends the copying of the host before, which waits for one more byte, and passes that on while its end is open still.
func (p *port) drain(t *testing.T) {
	t.Helper()
	for {
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			_, _ = io.WriteString(p.toHost, "\n")
		}()
		select {
		case <-p.copied:
			return
		case <-taken:
		}
	}
}

func serve(t *testing.T, methods map[string]Handler) (*Server, *port) {
	t.Helper()
	server, p := NewServer(methods), newPort()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(context.Background(), p.guestReads, p.toHost)
	}()
	t.Cleanup(func() {
		p.toGuest.Close()
		p.hostReads.Close()
		p.toHost.Close()
		<-ended
	})
	return server, p
}

func dial(t *testing.T, p *port) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := NewClient(ctx, p.connect(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func echo(_ context.Context, _ string, params json.RawMessage) (any, error) { return params, nil }
