package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"godwit/internal/need"
	"godwit/internal/socket"
	"godwit/transfer/coding"
	"godwit/transfer/pace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pong = "\x00\x02\x00\x04abcd"
	ack  = "\x00\x07\x00\x00"
	shut = "\x00\x01\x00\x04\x00\x00\x00\x00"
)

// hang is how long something may take that takes no time, on a machine that is busy with others.
const hang = 30 * time.Second

// rig is a Source with a QEMU on one side and a peer on the other, both ours.
type rig struct {
	limit      pace.Limiter
	t          *testing.T
	src        *Source
	path       string
	peers      chan net.Conn // accepted at the peer's host
	qemu, peer net.Conn      // the main stream
}

func newRig(t *testing.T, dial func(ctx context.Context, address string) (net.Conn, error)) *rig {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	r := &rig{t: t, peers: make(chan net.Conn, 300)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.peers <- conn
		}
	}()
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	dir, err := os.MkdirTemp("", "t-godwit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.path = filepath.Join(dir, "out.sock")
	r.src, err = ListenSource(t.Context(), r.path, r.limit.Share(), func(ctx context.Context, _ int) (net.Conn, error) {
		return dial(ctx, listener.Addr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.src.Close() })
	r.qemu, r.peer = r.stream()
	return r
}

// stream opens one more stream and returns its two ends.
func (r *rig) stream() (qemu, peer net.Conn) {
	r.t.Helper()
	qemu, err := net.Dial("unix", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	peer = <-r.peers
	for _, c := range []net.Conn{qemu, peer} {
		c.SetDeadline(time.Now().Add(hang))
		r.t.Cleanup(func() { c.Close() })
	}
	return qemu, peer
}

func (r *rig) send(conn net.Conn, text string) {
	r.t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) expect(conn net.Conn, want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		r.t.Fatalf("read %q, %v; want %q", got[:n], err, want)
	}
}

func (r *rig) expectNothing(conn net.Conn) {
	r.t.Helper()
	conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var b [64]byte
	if n, err := conn.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("read %q, %v; want nothing", b[:n], err)
	}
	conn.SetReadDeadline(time.Now().Add(hang))
}

// broken waits for the Source's end and returns why.
func (r *rig) broken() error {
	r.t.Helper()
	select {
	case <-r.src.Done():
		return r.src.Err()
	case <-time.After(hang):
		r.t.Fatal("source forwarder did not end")
		panic("unreachable")
	}
}

func TestAcknowledgementIsKeptBackAndNothingElse(t *testing.T) {
	for name, allowFirst := range map[string]bool{"ack first": false, "allowed first": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.send(r.qemu, "pages")
			r.expect(r.peer, "pages")
			r.send(r.peer, pong)
			r.expect(r.qemu, pong)
			if allowFirst {
				r.src.AllowSwitchover()
				r.expectNothing(r.qemu) // the destination has not agreed yet
				r.send(r.peer, ack)
			} else {
				r.send(r.peer, ack+pong)
				r.expect(r.qemu, pong)
				r.expectNothing(r.qemu)
				r.src.AllowSwitchover()
			}
			r.expect(r.qemu, ack)
			r.send(r.peer, shut)
			r.expect(r.qemu, shut)

			r.qemu.(*net.UnixConn).CloseWrite()
			if rest, err := io.ReadAll(r.peer); err != nil || len(rest) != 0 {
				t.Fatalf("after the end: %q, %v", rest, err)
			}
			r.peer.Close()
			if rest, err := io.ReadAll(r.qemu); err != nil || len(rest) != 0 {
				t.Fatalf("after the end: %q, %v", rest, err)
			}
			if err := r.broken(); err != nil {
				t.Errorf("clean end: %v", err)
			}
			s := r.src.Stats()
			if s.Streams != 1 || s.Forward != 5 || s.Back == 0 || !s.Acked || !s.Allowed || !s.AckPassedOn {
				t.Errorf("stats %+v", s)
			}
			if _, err := os.Stat(r.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("socket is left: %v", err)
			}
		})
	}
}

func TestReturnPathIsParsedStrictly(t *testing.T) {
	for name, c := range map[string]struct{ bytes, want string }{
		"unknown type":      {"\x00\x09\x00\x00", "unknown message type 9"},
		"pong too long":     {"\x00\x02\x00\x05abcde", "5 bytes, not 4 to 4"},
		"longest length":    {"\x00\x03\xff\xff", "65535 bytes, not 14 to 268"},
		"ack with data":     {"\x00\x07\x00\x01x", "1 bytes, not 0 to 0"},
		"bitmap":            {"\x00\x05\x00\x04\x03abc", "RECV_BITMAP"},
		"ack twice":         {ack + ack, "second SWITCHOVER_ACK"},
		"end in the middle": {"\x00\x02\x00\x04ab", "unexpected EOF"},
		"end in the header": {"\x00\x02", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.send(r.peer, c.bytes)
			r.peer.(*net.TCPConn).CloseWrite()
			err := r.broken()
			var side *SideError
			if !errors.As(err, &side) || side.Side != Peer || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one of the peer with %q", err, c.want)
			}
			if got, _ := io.ReadAll(r.qemu); len(got) != 0 {
				t.Errorf("passed on: %q", got)
			}
		})
	}
}

func TestOtherStreamsCarryNothingBack(t *testing.T) {
	r := newRig(t, nil)
	qemu, peer := r.stream()
	r.send(qemu, "page")
	r.expect(peer, "page")
	r.send(peer, "x")
	if err := r.broken(); err == nil || !strings.HasPrefix(err.Error(), "stream 1: read peer:") {
		t.Errorf("error %v", err)
	}
}

// TestPackedOnItsWay: a forwarder packs for a peer that unpacks, and counts what it sends.
func TestPackedOnItsWay(t *testing.T) {
	var sent int64
	for p := need.Patient(5 * time.Second); ; { // where it gets no processor while it packs it leaves that for a while
		if sent = packedOnItsWay(t); sent <= 100_000 || p.Over() {
			break
		}
	}
	if sent < 50 || sent > 100_000 {
		t.Errorf("%d bytes were sent", sent)
	}
}

// packedOnItsWay is how many bytes go for 3 MB of text, which arrive whole.
func packedOnItsWay(t *testing.T) int64 {
	t.Helper()
	r := newRig(t, func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return coding.Over(conn), err
	})
	unpacked, err := coding.Reader(r.peer)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", strings.Repeat("text of a disk\n", 200_000), "end"} {
		go io.WriteString(r.qemu, text) //nolint:errcheck // seen by what is read
		got := make([]byte, len(text))
		if _, err := io.ReadFull(unpacked, got); err != nil || string(got) != text {
			t.Fatalf("of %d bytes came others: %v", len(text), err)
		}
	}
	sent := r.src.Stats().Forward
	r.qemu.(*net.UnixConn).CloseWrite()
	if rest, err := io.ReadAll(unpacked); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	return sent
}

func TestOneBrokenStreamEndsAll(t *testing.T) {
	r := newRig(t, nil)
	_, peer := r.stream()
	socket.Abort(peer) // which may come before the connection was taken over
	if err := r.broken(); err == nil || !strings.Contains(err.Error(), "stream 1: ") || !strings.Contains(err.Error(), " peer") {
		t.Errorf("error %v", err)
	}
	if _, err := io.ReadAll(r.qemu); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Logf("main stream: %v", err)
	} else if err != nil {
		t.Error("main stream is still open")
	}
}

func TestConnectErrorNamesThePeer(t *testing.T) {
	dir := t.TempDir()
	src, err := ListenSource(t.Context(), filepath.Join(dir, "s"), nil, func(context.Context, int) (net.Conn, error) {
		return nil, errors.New("no route")
	})
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := net.Dial("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer qemu.Close()
	<-src.Done()
	if got := src.Err(); got == nil || got.Error() != "stream 0: connect peer: no route" {
		t.Errorf("error %v", got)
	}
}

func TestListenSourceLeavesOtherFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSource(t.Context(), path, nil, nil); err == nil {
		t.Error("took the place of a file")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "x" {
		t.Errorf("file: %q, %v", text, err)
	}
}

func TestServeStreamNamesQEMU(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	err := ServeStream(t.Context(), here, filepath.Join(t.TempDir(), "nobody"), nil)
	var side *SideError
	if !errors.As(err, &side) || side.Side != QEMU || side.Op != "connect" {
		t.Errorf("error %v", err)
	}
	if _, err := there.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("connection is left open: %v", err)
	}
}

func FuzzReturnPath(f *testing.F) {
	f.Add([]byte(pong + ack + shut))
	f.Add([]byte("\x00\x03\x00\x10" + strings.Repeat("\x01", 16)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		g := newGate()
		g.relay(&out, bytes.NewReader(in))
		if !bytes.Contains(in, []byte(ack)) && !bytes.HasPrefix(in, out.Bytes()) {
			t.Errorf("%x became %x", in, out.Bytes())
		}
	})
}
