// Package peer is the link between two agents: TLS 1.3, both sides
// authenticated by certificates of the fleet's CA, over every pair of uplinks.
//
// One port carries two protocols, told apart by ALPN (RFC 7301): "http/1.1" for
// the calls of a migration (JSON over HTTP, all idempotent, so that a call whose
// answer was lost is simply repeated over another path), and StreamProtocol for
// bytes: one line of JSON (Header), then whatever the two ends agreed on.
package peer

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"godwit/internal/clock"
)

// StreamProtocol is the ALPN name of byte streams.
const StreamProtocol = "godwit-stream/1"

// DefaultPort is where an agent listens on each of its uplinks.
const DefaultPort = 7440

// Identity is who this agent is: its certificate, and the CA that it trusts.
// A certificate's DNS name is the host's name.
type Identity struct {
	cert tls.Certificate
	pool *x509.CertPool
}

// LoadIdentity reads PEM files: the fleet's CA, this host's certificate and key.
func LoadIdentity(ca, cert, key string) (*Identity, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read fleet ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read fleet ca %s: no certificate in it", ca)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read host certificate %s: %w", cert, err)
	}
	return &Identity{cert: pair, pool: pool}, nil
}

// Host is the name by which others know who this is; "": the certificate has none.
func (id *Identity) Host() string {
	if len(id.cert.Leaf.DNSNames) == 0 {
		return ""
	}
	return id.cert.Leaf.DNSNames[0]
}

// Expires is when the certificate ends.
func (id *Identity) Expires() time.Time { return id.cert.Leaf.NotAfter }

// Check says why other agents would not believe the certificate at that time.
func (id *Identity) Check(now time.Time) error {
	between := x509.NewCertPool()
	for _, der := range id.cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err := id.cert.Leaf.Verify(x509.VerifyOptions{
		Roots: id.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// server asks every caller for a certificate of the fleet.
func (id *Identity) server() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Time:         clock.Now,
		Certificates: []tls.Certificate{id.cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    id.pool,
		NextProtos:   []string{"http/1.1", StreamProtocol},
	}
}

// client expects the certificate of exactly host.
func (id *Identity) client(host, protocol string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Time:         clock.Now,
		Certificates: []tls.Certificate{id.cert},
		RootCAs:      id.pool,
		ServerName:   host,
		NextProtos:   []string{protocol},
	}
}

// callerName is the host name in a verified peer certificate.
func callerName(state tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].DNSNames) == 0 {
		return ""
	}
	return state.PeerCertificates[0].DNSNames[0]
}
