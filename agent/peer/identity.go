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
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"godwit/internal/clock"
)

// StreamProtocol is the ALPN name of byte streams.
const StreamProtocol = "godwit-stream/1"

// DefaultPort is where an agent listens on each of its uplinks.
const DefaultPort = 7440

// Identity is who this agent is: its certificate, and the CA that it trusts.
// A certificate's DNS name is the host's name. Files that were renewed count from the next
// connection on, as soon as they fit each other.
type Identity struct {
	files [3]string // ca, cert, key
	tell  func(error)

	mu      sync.Mutex
	now     *papers
	looking chan struct{} // closed when a look at the files is over; nil: none is under way

	stamp   [3]stamp // of the files when they were last read, whatever came of it; a look's, as what follows
	refused bool     // they did not count then
}

// papers are what an identity's files held when they were read, all at once.
type papers struct {
	cert tls.Certificate
	pool *x509.CertPool
}

// stamp tells a file from the one that was there before.
type stamp struct {
	node  uint64
	size  int64
	mtime int64 // ns
}

// Cure is what to do about certificates that are not there, or that nobody believes.
const Cure = "`godwit init` makes a fleet's, see docs/agent.md, Certificates"

// RenewBefore is how long before the end of a certificate it should be thought of.
const RenewBefore = 30 * 24 * time.Hour

// Untimely is the error of a certificate that is not good at the time which this host's clock shows.
type Untimely struct{ Now, From, Until time.Time }

func (u Untimely) Error() string {
	shown := func(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }
	if u.Now.Before(u.From) {
		return fmt.Sprintf("it is good from %s on, and this host's clock shows %s", shown(u.From), shown(u.Now))
	}
	return fmt.Sprintf("it expired at %s by this host's clock, which shows %s", shown(u.Until), shown(u.Now))
}

// CureOf is Cure of what Check says: a clock that is wrong is no fault of certificates.
func CureOf(err error) string {
	if errors.As(err, new(Untimely)) {
		return "set the clock right if it is not; else " + Cure
	}
	return Cure
}

// LoadIdentity reads PEM files: the fleet's CA, this host's certificate and key. Its error says what to do.
func LoadIdentity(ca, cert, key string) (*Identity, error) {
	id := &Identity{files: [3]string{ca, cert, key}, tell: func(error) {}}
	id.stamp = id.stamps()
	var err error
	if id.now, err = readPapers(id.files); err != nil {
		err = fmt.Errorf("%w; %s", err, Cure)
	}
	return id, err
}

func readPapers(files [3]string) (*papers, error) {
	ca, cert, key := files[0], files[1], files[2]
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
	return &papers{cert: pair, pool: pool}, nil
}

// OnRenewed has tell called, by whoever connects, when other files are there than were: with nil when they
// count from now on, and with why not when those of before go on to. To be set before anybody connects; tell
// must not ask id itself.
func (id *Identity) OnRenewed(tell func(error)) { id.tell = tell }

func (id *Identity) stamps() (out [3]stamp) {
	for i, path := range id.files {
		if info, err := os.Stat(path); err == nil {
			out[i] = stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
			if sys, ok := info.Sys().(*syscall.Stat_t); ok {
				out[i].node = sys.Ino
			}
		}
	}
	return out
}

// lookMost is how long who connects waits for a look at the files: storage that hangs cuts no host off.
const lookMost = time.Second

// papers are what counts now. Files that are replaced one after the other count when the last is there:
// until they fit each other, and are this host's, those of before do.
func (id *Identity) papers() *papers {
	id.mu.Lock()
	over := id.looking
	if over == nil {
		over = make(chan struct{})
		id.looking = over
		go id.look()
	}
	id.mu.Unlock()
	most := time.NewTimer(lookMost)
	defer most.Stop()
	select {
	case <-over:
	case <-most.C:
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.now
}

// look reads the files where they are others than before. What does not count is looked at again each time: a
// certificate may be valid from a moment later on, by a CA whose clock is ahead, and what could not be read be read then.
func (id *Identity) look() {
	stamp := id.stamps()
	if again := stamp == id.stamp; !again || id.refused {
		next, err := id.renewed()
		id.stamp, id.refused = stamp, err != nil
		if err == nil {
			id.mu.Lock()
			id.now = next
			id.mu.Unlock()
		}
		if err == nil || !again {
			id.tell(err)
		}
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	close(id.looking)
	id.looking = nil
}

// renewed are what the files hold, where that may count from now on.
func (id *Identity) renewed() (*papers, error) {
	next, err := readPapers(id.files)
	if err != nil {
		return nil, err
	}
	id.mu.Lock()
	was := id.now.host()
	id.mu.Unlock()
	if next.host() != was {
		return nil, fmt.Errorf("host certificate %s is host %q's, and this is %s", id.files[1], next.host(), was)
	}
	return next, next.check(clock.Now())
}

// Host is the name by which others know who this is; "": the certificate has none.
func (id *Identity) Host() string { return id.papers().host() }

func (p *papers) host() string {
	if len(p.cert.Leaf.DNSNames) == 0 {
		return ""
	}
	return p.cert.Leaf.DNSNames[0]
}

// Expires is when the certificate ends.
func (id *Identity) Expires() time.Time { return id.papers().cert.Leaf.NotAfter }

// Check says why other agents would not believe the certificate at that time.
func (id *Identity) Check(now time.Time) error { return id.papers().check(now) }

func (p *papers) check(now time.Time) error {
	between := x509.NewCertPool()
	for _, der := range p.cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err := p.cert.Leaf.Verify(x509.VerifyOptions{
		Roots: p.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired { // the leaf's own: of a CA's there is none that is known
		return Untimely{now, p.cert.Leaf.NotBefore, p.cert.Leaf.NotAfter}
	}
	return err
}

// server asks every caller for a certificate of the fleet.
func (id *Identity) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			p := id.papers()
			return &tls.Config{
				MinVersion:             tls.VersionTLS13,
				Time:                   clock.Now,
				Certificates:           []tls.Certificate{p.cert},
				ClientAuth:             tls.RequireAndVerifyClientCert,
				ClientCAs:              p.pool,
				NextProtos:             []string{"http/1.1", StreamProtocol},
				SessionTicketsDisabled: true, // each connection shows its certificate
			}, nil
		},
	}
}

// client expects the certificate of exactly host.
func (id *Identity) client(host, protocol string) *tls.Config {
	p := id.papers()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Time:         clock.Now,
		Certificates: []tls.Certificate{p.cert},
		RootCAs:      p.pool,
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
