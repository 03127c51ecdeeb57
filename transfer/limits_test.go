package transfer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestEndsWithinASecond has a peer that reads nothing, below TLS, whose polite close waits.
func TestEndsWithinASecond(t *testing.T) {
	server, client := tlsConfigs(t)
	handshaken := make(chan struct{})
	r := newRig(t, func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: client}).DialContext(ctx, "tcp", address)
		close(handshaken)
		return conn, err
	})
	if err := tls.Server(r.peer, server).HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-handshaken
	var wrote atomic.Int64
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for piece := make([]byte, 4<<10); ; {
			n, err := r.qemu.Write(piece)
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	blocked := func() bool { // the peer reads nothing, and all that can wait on the way to it does
		n, s := wrote.Load(), r.src.Stats()
		return s.Backlog >= 128<<10 && s.Backlog+s.Forward >= n
	}
	for until := time.Now().Add(hang); !blocked(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%+v, but QEMU wrote %d", r.src.Stats(), wrote.Load())
		}
	}
	begun := time.Now()
	if err := r.src.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("close took %v", took)
	}
	<-writing
}

func tlsConfigs(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: pool}
}

// TestBandwidthOfAllStreamsTogether: two streams bring 1 MiB, the first half of it by a limit of theirs that lets none
// of it come sooner, however fast the machine is; by a new one, under which they go on at once, the rest comes long
// before the old one would have let it.
func TestBandwidthOfAllStreamsTogether(t *testing.T) {
	const half, rate = 512 << 10, 2 << 20
	r := newRig(t, nil)
	qemu2, peer2 := r.stream()
	r.limit.Set(rate)
	begun := time.Now()
	var came atomic.Int64
	halves, done := make(chan struct{}), make(chan error, 2)
	read := func(conn net.Conn) error {
		for buf, rest := make([]byte, 4<<10), int64(half); rest > 0; {
			n, err := conn.Read(buf[:min(rest, int64(len(buf)))])
			if err != nil {
				return err
			}
			rest -= int64(n)
			if all := came.Add(int64(n)); all >= half && all-int64(n) < half {
				close(halves)
			}
		}
		return nil
	}
	for _, pair := range [][2]net.Conn{{r.qemu, r.peer}, {qemu2, peer2}} {
		go pair[0].Write(make([]byte, half)) //nolint:errcheck // seen by what is read
		go func() { done <- read(pair[1]) }()
	}
	select {
	case <-halves:
	case <-time.After(hang):
		t.Fatalf("%d bytes have come", came.Load())
	}
	const least = half * time.Second / rate * 4 / 5 // where each had the limit for itself: half of it
	if took := time.Since(begun); took < least {
		t.Errorf("half a MiB took %v, want %v at least", took, least)
	}
	r.limit.Set(8 << 10) // the other half in a minute
	time.Sleep(50 * time.Millisecond)
	r.limit.Set(1 << 30)
	for range 2 {
		if err := <-done; err != nil { // a stream's deadline is before that minute ends
			t.Error(err)
		}
	}
}
