// Package nameserver tells a name server where a guest is now: one RFC 2136 update,
// signed by TSIG (RFC 8945), that replaces the A and AAAA records of its name.
package nameserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Config says which server takes updates, of what names.
type Config struct {
	Server string        `yaml:"server"`         // address, or address and port; port 53 where it names none
	Zone   string        `yaml:"zone"`           // such as example.org
	Name   string        `yaml:"name,omitempty"` // of a guest, below the zone or with it and a final dot; {guest} stands for the guest's name. Default {guest}
	Key    Key           `yaml:"key"`
	TTL    time.Duration `yaml:"ttl,omitempty"` // of the records; default 30s
}

// Key is the TSIG key that the server knows too.
type Key struct {
	Name      string `yaml:"name"`
	File      string `yaml:"file"`                // the secret in base64, or what tsig-keygen prints; read at each update
	Algorithm string `yaml:"algorithm,omitempty"` // default hmac-sha256
}

const (
	defaultTTL       = 30 * time.Second
	defaultAlgorithm = "hmac-sha256"
	port             = "53"
	fudge            = 300 // seconds by which clocks may differ (RFC 8945 §10)
	answerLimit      = 3 * time.Second
)

// algorithms are those that servers still take.
var algorithms = []string{"hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"}

// Check says what is missing or cannot be meant.
func (c Config) Check() error {
	for _, key := range []struct{ name, value string }{
		{"server", c.Server}, {"zone", c.Zone}, {"key.name", c.Key.Name}, {"key.file", c.Key.File},
	} {
		if key.value == "" {
			return fmt.Errorf("%s is missing", key.name)
		}
	}
	if _, err := netip.ParseAddrPort(c.address()); err != nil {
		return fmt.Errorf("server %q is not an address, such as 192.0.2.53 or 192.0.2.53:5353", c.Server)
	}
	if _, ok := dns.IsDomainName(c.Zone); !ok {
		return fmt.Errorf("zone %q is not a domain name", c.Zone)
	}
	if name := c.NameOf("guest"); !dns.IsSubDomain(dns.Fqdn(c.Zone), name) {
		return fmt.Errorf("name %q is not in the zone %s", c.Name, c.Zone)
	}
	if !slices.Contains(algorithms, c.algorithm()) {
		return fmt.Errorf("key.algorithm %q is unknown; allowed: %s", c.Key.Algorithm, strings.Join(algorithms, ", "))
	}
	if c.TTL < 0 || c.TTL > 24*time.Hour || c.TTL%time.Second != 0 {
		return fmt.Errorf("ttl of %v; whole seconds, up to 24h", c.TTL)
	}
	return nil
}

func (c Config) address() string {
	if addr, err := netip.ParseAddr(strings.Trim(c.Server, "[]")); err == nil {
		return net.JoinHostPort(addr.String(), port)
	}
	return c.Server
}

func (c Config) algorithm() string {
	if c.Key.Algorithm == "" {
		return defaultAlgorithm
	}
	return strings.ToLower(c.Key.Algorithm)
}

func (c Config) ttl() uint32 {
	if c.TTL == 0 {
		return uint32(defaultTTL / time.Second)
	}
	return uint32(c.TTL / time.Second) //nolint:gosec // checked
}

// NameOf is the fully qualified name of a guest.
func (c Config) NameOf(guest string) string {
	name := c.Name
	if name == "" {
		name = "{guest}"
	}
	name = strings.ReplaceAll(name, "{guest}", strings.ToLower(guest))
	if strings.HasSuffix(name, ".") {
		return name
	}
	return name + "." + dns.Fqdn(c.Zone)
}

// Update makes addrs all the addresses of the guest's name, in one attempt. It is
// repeatable. On an error, which is one line, the server has the old records or the
// new ones, never some of each.
func (c Config) Update(ctx context.Context, guest string, addrs []netip.Addr) error {
	name := c.NameOf(guest)
	if err := c.update(ctx, name, addrs, time.Now()); err != nil {
		return fmt.Errorf("update %s at name server %s: %w", name, c.address(), err)
	}
	return nil
}

// update is Update, now by this host's clock.
func (c Config) update(ctx context.Context, name string, addrs []netip.Addr, now time.Time) error {
	secret, err := readSecret(c.Key.File)
	if err != nil {
		return err
	}
	m := c.message(name, addrs)
	key := dns.Fqdn(strings.ToLower(c.Key.Name))
	m.SetTsig(key, dns.Fqdn(c.algorithm()), fudge, now.Unix())
	client := dns.Client{Net: "tcp", TsigSecret: map[string]string{key: secret}, Timeout: answerLimit}
	answer, _, err := client.ExchangeContext(ctx, m, c.address())
	switch {
	case answer != nil && answer.Rcode != dns.RcodeSuccess:
		return refusal(answer, now)
	case err != nil:
		return err
	case answer.IsTsig() == nil: // the client verifies what it finds, and a signed request's answer is signed (RFC 8945 §5.3)
		return errors.New("its answer is not signed: anybody may have given it, and whether the update was taken is not known")
	}
	return nil
}

// message is the update, unsigned. Removing a whole RRset and adding to it in one
// message is one act for the server (RFC 2136 §3.4). To a name that is an alias (CNAME) a server
// would add nothing, and say that all is well (§3.4.2.2): so it must be none.
func (c Config) message(name string, addrs []netip.Addr) *dns.Msg {
	m := new(dns.Msg)
	m.SetUpdate(dns.Fqdn(c.Zone))
	m.RRsetNotUsed([]dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET}}})
	m.RemoveRRset([]dns.RR{
		&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET}},
		&dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET}},
	})
	for _, addr := range addrs {
		header := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: c.ttl()}
		if addr.Is4() {
			header.Rrtype = dns.TypeA
			m.Insert([]dns.RR{&dns.A{Hdr: header, A: addr.AsSlice()}})
		} else {
			header.Rrtype = dns.TypeAAAA
			m.Insert([]dns.RR{&dns.AAAA{Hdr: header, AAAA: addr.AsSlice()}})
		}
	}
	return m
}

// refusal says what the server's answer means, to what was asked at now, and what to look at.
func refusal(answer *dns.Msg, now time.Time) error {
	code := dns.RcodeToString[answer.Rcode]
	t := answer.IsTsig()
	if t != nil && t.Error != dns.RcodeSuccess {
		code += ", " + dns.RcodeToString[int(t.Error)]
	}
	hint := ""
	switch answer.Rcode {
	case dns.RcodeRefused:
		hint = ": it does not let this key change the name"
	case dns.RcodeNotAuth:
		hint = ": " + notAuth(t, now)
	case dns.RcodeYXRrset:
		hint = ": the name is an alias (CNAME), which has no addresses of its own; delete that record, or give guests other names"
	case dns.RcodeNotZone:
		hint = ": the name is not in the zone"
	}
	return fmt.Errorf("refused (%s)%s", code, hint)
}

// notAuth says what a server means that answers NOTAUTH: of a signature that it does not take TSIG's own error says why
// (RFC 8945 §5.2), and without one it is the zone (RFC 2136 §3.1.1).
func notAuth(t *dns.TSIG, now time.Time) string {
	if t == nil {
		return "it does not know the key or the zone"
	}
	switch t.Error {
	case dns.RcodeSuccess:
		return "it does not have the zone"
	case dns.RcodeBadKey:
		return "it has no key of this name and algorithm"
	case dns.RcodeBadSig:
		return "its secret of this key is another"
	case dns.RcodeBadTime:
		return fmt.Sprintf("%s; they may differ by %v: set right the one that is wrong", clocks(t, now), fudge*time.Second)
	}
	return "it does not take the signature"
}

// clocks says how far a server's clock is from this host's, which showed now as it was asked. A server that minds says what its own
// shows: 48 bits of seconds (RFC 8945 §5.2.3).
func clocks(t *dns.TSIG, now time.Time) string {
	there, err := strconv.ParseInt(t.OtherData, 16, 64)
	if err != nil || len(t.OtherData) != 12 {
		return "its clock and this host's differ"
	}
	at := time.Unix(there, 0)
	ahead, word := at.Sub(now).Truncate(time.Second), "ahead of"
	if ahead < 0 {
		ahead, word = -ahead, "behind"
	}
	return fmt.Sprintf("its clock shows %s UTC, and is %v %s this host's", at.UTC().Format(time.DateTime), ahead, word)
}

// secretForm finds the secret in what tsig-keygen prints.
var secretForm = regexp.MustCompile(`secret\s+"([^"]*)"`)

// maxSecret bounds a secret's file, bytes.
const maxSecret = 4096

func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the key's secret: %w", err)
	}
	if len(data) > maxSecret {
		return "", fmt.Errorf("read the key's secret: %s is larger than %d bytes", path, maxSecret)
	}
	secret := strings.TrimSpace(string(data))
	if m := secretForm.FindStringSubmatch(secret); m != nil {
		secret = m[1]
	}
	if raw, err := base64.StdEncoding.DecodeString(secret); err != nil || len(raw) == 0 {
		return "", errors.New("read the key's secret: " + path + " holds neither base64 nor what tsig-keygen prints")
	}
	return secret, nil
}
