package lab

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"godwit/netstate/netns"
	"godwit/vm/guest"
)

const quicPort = 4433

// serveQUIC has a QUIC server run in the guest, which fetches it from the client.
func (p *trial) serveQUIC(client, name string) {
	p.Helper()
	program := filepath.Join(p.TempDir(), "quicserver")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./quicserver")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		p.Fatalf("build a QUIC server: %v: %s", err, out)
	}
	var listener net.Listener
	p.must(netns.Do(p.w.topo.Client(client).Namespace, func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(p.addr(client), 0).String())
		return err
	}))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, program) }), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	go func() { _ = server.Serve(listener); close(ended) }()
	defer func() { server.Close(); <-ended }()
	var out guest.Executed
	p.must(p.w.agents["montreal"].client.CallGuest(p.Context(), name, "exec", guest.Exec{TimeoutMS: 30000, Command: fmt.Sprintf(
		"busybox wget -q -O /quicserver http://%s/ && chmod 700 /quicserver && (/quicserver :%d </dev/null >/dev/null 2>&1 &)", listener.Addr(), quicPort)}, &out))
	if out.Exit != 0 {
		p.Fatalf("start a QUIC server: exit %d: %s%s", out.Exit, out.Stdout, out.Stderr)
	}
}

// quicFlow is a client's QUIC connection, over which numbers go to and fro.
type quicFlow struct {
	ended   chan struct{}
	cancel  context.CancelFunc
	err     error         // what ended it; to be read after that
	answers atomic.Uint64 // that came, each the number that was asked
}

// quic connects a client to the QUIC server at an address of the guest.
func (p *trial) quic(client string, target netip.Addr) *quicFlow {
	p.Helper()
	p.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	var socket net.PacketConn
	p.must(netns.Do(p.w.topo.Client(client).Namespace, func() (err error) {
		socket, err = net.ListenPacket("udp4", netip.AddrPortFrom(p.addr(client), 0).String())
		return err
	}))
	transport := &quic.Transport{Conn: socket}
	ctx, cancel := context.WithCancel(p.Context())
	//nolint:gosec // the server has made its certificate itself
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"godwit-echo"}}
	var conn *quic.Conn
	var err error
	for range 3 { // the server may not listen yet
		dialling, stop := context.WithTimeout(ctx, 10*time.Second)
		conn, err = transport.Dial(dialling, net.UDPAddrFromAddrPort(netip.AddrPortFrom(target, quicPort)), conf, &quic.Config{MaxIdleTimeout: time.Minute})
		stop()
		if err == nil {
			break
		}
	}
	p.must(err)
	stream, err := conn.OpenStreamSync(ctx)
	p.must(err)
	f := &quicFlow{ended: make(chan struct{}), cancel: cancel}
	context.AfterFunc(ctx, func() { stream.CancelRead(0) })
	go func() {
		defer close(f.ended)
		f.err = f.run(ctx, stream)
		_ = conn.CloseWithError(0, "")
		_ = transport.Close()
		_ = socket.Close()
	}()
	p.Cleanup(func() { f.stop() })
	return f
}

// run asks a hundred times a second, and waits for each answer.
func (f *quicFlow) run(ctx context.Context, stream *quic.Stream) error {
	for ctx.Err() == nil {
		var asked, got [8]byte
		binary.BigEndian.PutUint64(asked[:], f.answers.Load())
		if _, err := stream.Write(asked[:]); err != nil {
			return err
		}
		if _, err := io.ReadFull(stream, got[:]); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it is stopped
			}
			return err
		}
		if got != asked {
			return fmt.Errorf("answer %x to %x", got, asked)
		}
		f.answers.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (f *quicFlow) stop() {
	f.cancel()
	<-f.ended
}

// goesOn waits until twenty more answers have come.
func (f *quicFlow) goesOn(t *testing.T, name string) {
	t.Helper()
	before := f.answers.Load()
	for end := time.Now().Add(20 * time.Second); f.answers.Load() < before+20; time.Sleep(20 * time.Millisecond) {
		select {
		case <-f.ended:
			t.Fatalf("%s ended after %d answers: %v", name, f.answers.Load(), f.err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %d answers in 20 s", name, f.answers.Load()-before)
		}
	}
}
