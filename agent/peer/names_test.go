package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestNamesOfAnybody: whoever answers at another host's address may have a certificate of any names, which are read
// before it is seen to be none of the fleet's: they make no error longer than a line, and move no terminal.
func TestNamesOfAnybody(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"\x1b[2J\r\n" + strings.Repeat("x", 1<<14)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"http/1.1", StreamProtocol}, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go func() {
				conn.(*tls.Conn).Handshake() //nolint:errcheck // it is refused
				conn.Close()
			}()
		}
	}()
	port, path := uint16(listener.Addr().(*net.TCPAddr).Port), Path{Name: "lo-lo", Local: loopback, Remote: loopback}
	link := linkTo(t, fleet(t, "paris")["paris"], "rome", port)
	ctx := within(t, time.Minute)
	_, opened := link.Open(ctx, path, Header{}, 0)
	_, multipath := link.OpenMultipath(ctx, path, port, Header{}, 0)
	for of, err := range map[string]error{
		"a call": link.Call(ctx, http.MethodPost, "/echo", nil, nil), "a try": link.Reaches(ctx, path), "a stream": opened, "a stream by mptcp": multipath,
	} {
		if err == nil || !strings.Contains(err.Error(), "certificate is valid for") || len(err.Error()) > 4000 || strings.ContainsAny(err.Error(), "\x1b\r\n") {
			t.Errorf("%s: %.200q", of, err)
		}
	}
}
