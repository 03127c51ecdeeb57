package image

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// once keeps no connection open behind the test's back.
var once = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// stream is a connection on which the guest answers line by line.
type stream struct {
	conn net.Conn
	in   *bufio.Reader
}

func open(ctx context.Context, t *testing.T, host string, multipath bool) *stream {
	t.Helper()
	var dialer net.Dialer
	dialer.SetMultipathTCP(multipath)
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, "80"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &stream{conn, bufio.NewReader(conn)}
	s.ask(t)
	if used, err := conn.(*net.TCPConn).MultipathTCP(); err != nil || used != multipath {
		t.Fatalf("connection to %s: MPTCP %v, %v; asked for %v", host, used, err, multipath)
	}
	return s
}

// ask shows that the connection works both ways.
func (s *stream) ask(t *testing.T) {
	t.Helper()
	_ = s.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(s.conn, "GET /bytes/10 HTTP/1.1\r\nHost: guest\r\n\r\n"); err != nil {
		t.Fatalf("ask %s: %v", s.conn.RemoteAddr(), err)
	}
	response, err := http.ReadResponse(s.in, nil)
	if err != nil {
		t.Fatalf("ask %s: %v", s.conn.RemoteAddr(), err)
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); n != 10 || err != nil {
		t.Fatalf("ask %s: %d bytes, %v", s.conn.RemoteAddr(), n, err)
	}
}

// echoes sends a numbered datagram every 2 ms and counts the answers.
type echoes struct {
	conn     net.Conn
	end      chan struct{}
	sent     chan int
	received chan int
}

func startEchoes(t *testing.T, host string) *echoes {
	t.Helper()
	conn, err := net.Dial("udp", host+":7007")
	if err != nil {
		t.Fatal(err)
	}
	e := &echoes{conn, make(chan struct{}), make(chan int, 1), make(chan int, 1)}
	go func() {
		for n := 0; ; n++ {
			select {
			case <-e.end:
				e.sent <- n
				return
			case <-time.After(2 * time.Millisecond):
				_, _ = fmt.Fprintf(conn, "echo %d", n)
			}
		}
	}()
	go func() {
		seen := make(map[string]bool)
		buffer := make([]byte, 64)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				e.received <- len(seen)
				return
			}
			seen[string(buffer[:n])] = true
		}
	}()
	return e
}

func (e *echoes) stop() (sent, lost int) {
	close(e.end)
	sent = <-e.sent
	_ = e.conn.SetReadDeadline(time.Now().Add(time.Second))
	lost = sent - <-e.received
	e.conn.Close()
	return sent, lost
}
