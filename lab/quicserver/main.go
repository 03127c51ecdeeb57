// Command quicserver sends back what comes on each stream of each QUIC connection, as an ordinary
// QUIC server of a guest would. A test of lab builds it and has the guest fetch it.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

// Protocol is what both ends speak (ALPN).
const Protocol = "godwit-echo"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "quicserver: name the address to listen on, such as :4433")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "quicserver:", serve(os.Args[1]))
	os.Exit(1)
}

// serve returns why it came to its end.
func serve(addr string) error {
	cert, err := certificate()
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr(addr, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{Protocol}, MinVersion: tls.VersionTLS13},
		&quic.Config{MaxIdleTimeout: time.Minute})
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			for {
				stream, err := conn.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					defer stream.Close()
					_, _ = io.Copy(stream, stream)
				}()
			}
		}()
	}
}

// certificate is one that nobody has signed.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
