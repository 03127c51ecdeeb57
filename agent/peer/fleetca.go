package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// FleetCA issues the certificates of one fleet.
type FleetCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// fleetName is what each fleet's CA is called.
const fleetName = "godwit fleet"

// NewFleetCA makes a CA and writes DIR/ca.pem. The key stays in memory.
// Certificates are valid until a year after now.
func NewFleetCA(dir string, now time.Time) (*FleetCA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make fleet ca: %w", err)
	}
	template := certificate(fleetName, now)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make fleet ca: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make fleet ca: %w", err)
	}
	return &FleetCA{cert: cert, key: key, dir: dir}, writePEM(filepath.Join(dir, "ca.pem"), "CERTIFICATE", der, 0o644)
}

// Issue writes DIR/HOST.pem and DIR/HOST.key for host.
func (ca *FleetCA) Issue(host string, now time.Time) error {
	return ca.issue(host, certificate(host, now))
}

func (ca *FleetCA) issue(host string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", host, err)
	}
	template.DNSNames = []string{host}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", host, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("issue certificate %s: %w", host, err)
	}
	if err := writePEM(filepath.Join(ca.dir, host+".pem"), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writePEM(filepath.Join(ca.dir, host+".key"), "EC PRIVATE KEY", keyDER, 0o600)
}

// IsOf says whether a file's text is a certificate that some fleet's CA has issued for host.
func IsOf(text []byte, host string) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && !cert.IsCA && cert.Issuer.CommonName == fleetName && slices.Contains(cert.DNSNames, host)
}

func certificate(name string, now time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Unix(0, 0), // a beginning keeps nobody out, and bars hosts whose clocks are behind: some boot in 1970
		NotAfter:     now.AddDate(1, 0, 0),
	}
}

// writePEM replaces what is at path, whose mode, or where it leads, says nothing of who may read what comes.
func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
