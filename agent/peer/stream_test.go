package peer

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// accepted serves streams to rome, and opens from paris.
func accepted(t *testing.T) (open func(Header) net.Conn, raw func() *tls.Conn, streams chan *Stream) {
	t.Helper()
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	streams = make(chan *Stream)
	serve(t, ids["rome"], port, http.NotFoundHandler(), func(s *Stream) {
		streams <- s
		<-t.Context().Done() // the connection is the handler's until it returns
	})
	link := linkTo(t, ids["paris"], "rome", port)
	open = func(h Header) net.Conn {
		conn, err := link.Open(within(t, 5*time.Second), link.Paths()[0], h, 50<<20)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	raw = func() *tls.Conn {
		conn, err := tls.Dial("tcp", fmt.Sprintf("%s:%d", loopback, port), ids["paris"].client("rome", StreamProtocol))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	return open, raw, streams
}

func TestStream(t *testing.T) {
	open, _, streams := accepted(t)
	header := Header{Migration: "m-00000001", Kind: "memory", Number: 3}
	here := open(header)
	there := <-streams
	there.Header.Window = 0 // by the RTT
	if there.Caller != "paris" || there.Header != header {
		t.Fatalf("stream of %s: %+v", there.Caller, there.Header)
	}
	if _, ok := there.NetConn().(*net.TCPConn); !ok {
		t.Errorf("beneath TLS is a %T", there.NetConn())
	}

	page := bytes.Repeat([]byte("a page\n"), 100_000)
	wrote := make(chan error, 1)
	go func() {
		_, err := here.Write(page)
		if err == nil {
			err = here.(*tls.Conn).CloseWrite()
		}
		wrote <- err
	}()
	got, err := io.ReadAll(there)
	if err != nil || !bytes.Equal(got, page) {
		t.Fatalf("%d bytes of %d, %v", len(got), len(page), err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	// One way has ended, the other goes on.
	if _, err := io.WriteString(there, "thanks"); err != nil {
		t.Fatal(err)
	}
	if err := there.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(here); err != nil || string(back) != "thanks" {
		t.Fatalf("%q, %v", back, err)
	}
}

// TestStreamHeaderWithBytes: what comes in one packet with the header is not lost.
func TestStreamHeaderWithBytes(t *testing.T) {
	_, raw, streams := accepted(t)
	conn := raw()
	if _, err := io.WriteString(conn, `{"migration":"m-2","kind":"disk"}`+"\n\nrest"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s := <-streams
	if rest, err := io.ReadAll(s); s.Header.Kind != "disk" || string(rest) != "\nrest" || err != nil {
		t.Fatalf("%+v, %q, %v", s.Header, rest, err)
	}
}

func TestStreamHeaderRefused(t *testing.T) {
	_, raw, streams := accepted(t)
	for name, sent := range map[string]string{
		"not json":      "hello\n",
		"wrong type":    `{"number":"one"}` + "\n",
		"cut off":       `{"migration":`,
		"nothing":       "",
		"never ends":    strings.Repeat("x", 2*headerLimit),
		"a little long": `{"migration":"` + strings.Repeat("x", headerLimit) + `"}` + "\n",
	} {
		conn := raw()
		// A header that is too long may be refused before it was all written.
		_, err := io.WriteString(conn, sent)
		if err == nil {
			err = conn.CloseWrite()
		}
		if err != nil && len(sent) <= headerLimit {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 1))
		if timeout, ok := err.(net.Error); err == nil || ok && timeout.Timeout() {
			t.Errorf("%s: not ended: %v", name, err)
		}
		select {
		case s := <-streams:
			t.Errorf("%s: taken as %+v", name, s.Header)
		default:
		}
	}
}

// TestPackedStream: what is written to it is read at once, byte for byte, and its end too.
func TestPackedStream(t *testing.T) {
	open, _, streams := accepted(t)
	here := open(Header{Kind: "disk", Coding: CodingZstd})
	there := <-streams
	for _, want := range [][]byte{[]byte("a"), bytes.Repeat([]byte{0}, 700_000), []byte("end")} {
		written := make(chan error, 1)
		go func() {
			_, err := here.Write(want)
			written <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(there, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes: %v", len(got), err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	if err := here.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(there); len(rest) != 0 || err != nil {
		t.Errorf("after its end: %q, %v", rest, err)
	}
}
