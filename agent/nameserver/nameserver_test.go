package nameserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"godwit/internal/need"
)

const zone = "example.test"

// bind runs a real BIND whose zone takes updates signed by the key godwit, and
// returns its configuration for us.
func bind(t *testing.T) Config {
	t.Helper()
	need.Program(t, "named")
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().(*net.TCPAddr)
	listener.Close()
	secret := base64.StdEncoding.EncodeToString([]byte("not much of a secret, but 32 byte"))
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := write("key", fmt.Sprintf("key \"godwit\" {\n\talgorithm hmac-sha256;\n\tsecret %q;\n};\n", secret))
	write("zone", "$TTL 60\n@ IN SOA ns root 1 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\nweb IN TXT \"stays\"\nalias IN CNAME ns\n")
	conf := write("named.conf", fmt.Sprintf(`include "%[1]s/key";
key "other" { algorithm hmac-sha256; secret %[3]q; };
options { directory "%[1]s"; listen-on port %[2]d { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none; session-keyfile none; recursion no; dnssec-validation no; };
controls { };
zone "%[4]s" { type primary; file "%[1]s/zone"; update-policy { grant godwit subdomain %[4]s. A AAAA; }; };
`, dir, at.Port, secret, zone))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("named", "-g", "-c", conf, "-n", "1")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() //nolint:errcheck // killed
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s", text)
		}
	})
	c := Config{Server: at.String(), Zone: zone, Key: Key{Name: "godwit", File: key}}
	for end := time.Now().Add(20 * time.Second); len(ask(c, "ns."+zone+".", dns.TypeA)) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("BIND does not answer in 20 s")
		}
	}
	return c
}

// ask returns the records of a name as text, without its name.
func ask(c Config, name string, kind uint16) []string {
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	answer, err := dns.Exchange(m, c.Server)
	for tries := 0; errors.Is(err, os.ErrDeadlineExceeded) && tries < 5; tries++ { // an answer that a busy machine was late to read
		answer, err = dns.Exchange(m, c.Server)
	}
	if err != nil {
		return nil
	}
	var out []string
	for _, rr := range answer.Answer {
		out = append(out, strings.Join(strings.Fields(rr.String())[1:], " "))
	}
	slices.Sort(out)
	return out
}

func addrs(all ...string) (out []netip.Addr) {
	for _, a := range all {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// TestUpdate moves a name about on a real server: each update replaces all its
// addresses, in both families, and touches nothing else.
func TestUpdate(t *testing.T) {
	c := bind(t)
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	for _, move := range []struct {
		to     []netip.Addr
		a, six []string
	}{
		{addrs("10.1.1.10"), []string{"30 IN A 10.1.1.10"}, nil},
		{addrs("10.2.1.10", "fd00:2:1::10"), []string{"30 IN A 10.2.1.10"}, []string{"30 IN AAAA fd00:2:1::10"}},
		{addrs("10.2.1.10", "fd00:2:1::10"), []string{"30 IN A 10.2.1.10"}, []string{"30 IN AAAA fd00:2:1::10"}}, // done twice
		{addrs("fd00:3:1::10"), nil, []string{"30 IN AAAA fd00:3:1::10"}},
	} {
		if err := c.Update(t.Context(), "web", move.to); err != nil {
			t.Fatal(err)
		}
		if got := ask(c, "web.example.test.", dns.TypeA); !slices.Equal(got, move.a) {
			t.Errorf("%v: A %v, want %v", move.to, got, move.a)
		}
		if got := ask(c, "web.example.test.", dns.TypeAAAA); !slices.Equal(got, move.six) {
			t.Errorf("%v: AAAA %v, want %v", move.to, got, move.six)
		}
	}
	if got := ask(c, "web.example.test.", dns.TypeTXT); len(got) != 1 {
		t.Errorf("TXT %v: want what it was", got)
	}
}

// TestUpdateByAWrongClock: what the server refuses as the host's clock is wrong says how far the clocks are apart, and
// names neither key nor zone.
func TestUpdateByAWrongClock(t *testing.T) {
	c := bind(t)
	for _, by := range []time.Duration{-50 * 365 * 24 * time.Hour, -7 * time.Hour, 30 * 365 * 24 * time.Hour} {
		now := time.Now()
		err := c.update(t.Context(), c.NameOf("web"), addrs("10.1.1.10"), now.Add(by))
		word, want := "ahead of", -by
		if by > 0 {
			word, want = "behind", by
		}
		form := regexp.MustCompile(`^refused \(NOTAUTH, BADTIME\): its clock shows (.*) UTC, and is (.*) (ahead of|behind) this host's; they may differ by 5m0s: set right the one that is wrong$`)
		said := form.FindStringSubmatch(fmt.Sprint(err))
		if said == nil || said[3] != word {
			t.Errorf("%v off: %v", by, err)
			continue
		}
		took := time.Since(now).Truncate(time.Second) + 2*time.Second // its clock goes by seconds
		if apart, err := time.ParseDuration(said[2]); err != nil || (apart-want).Abs() > took {
			t.Errorf("%v off: %s, %v", by, said[2], err)
		}
		if at, err := time.Parse(time.DateTime, said[1]); err != nil || at.Sub(now).Abs() > took {
			t.Errorf("%v off: its clock shows %s, %v", by, said[1], err)
		}
	}
	if err := c.update(t.Context(), c.NameOf("web"), addrs("10.1.1.10"), time.Now().Add(-4*time.Minute)); err != nil {
		t.Errorf("four minutes behind: %v", err)
	}
}

// TestUpdateFails: each way to go wrong is one line that says what to look at.
func TestUpdateFails(t *testing.T) {
	good := bind(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, answers nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte(base64.StdEncoding.EncodeToString([]byte("another"))), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("not base64!"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"another's key", func(c *Config) { c.Key.Name = "other" }, "refused (REFUSED"},
		{"unknown key", func(c *Config) { c.Key.Name = "nobody" }, "refused (NOTAUTH, BADKEY): it has no key of this name and algorithm"},
		{"another algorithm", func(c *Config) { c.Key.Algorithm = "hmac-sha512" }, "refused (NOTAUTH, BADKEY): it has no key of this name and algorithm"},
		{"wrong secret", func(c *Config) { c.Key.File = bad }, "refused (NOTAUTH, BADSIG): its secret of this key is another"},
		{"not its zone", func(c *Config) { c.Zone = "elsewhere.test" }, "refused (NOTAUTH): it does not have the zone"},
		{"an alias", func(c *Config) { c.Name = "alias" }, "refused (YXRRSET): the name is an alias (CNAME)"},
		{"no secret", func(c *Config) { c.Key.File = empty }, "neither base64"},
		{"no file", func(c *Config) { c.Key.File += "x" }, "no such file"},
		{"silent", func(c *Config) { c.Server = silent.Addr().String() }, "i/o timeout"},
		{"nobody there", func(c *Config) { c.Server = "127.0.0.1:9" }, "connection refused"},
	} {
		config := good
		c.change(&config)
		limit := 20 * time.Second // the test's own end
		if c.name == "silent" {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := config.Update(ctx, "web", addrs("10.1.1.10"))
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in one line", c.name, err, c.want)
		}
	}
	if got := ask(good, "web.example.test.", dns.TypeA); len(got) != 0 {
		t.Errorf("the name has %v, want nothing", got)
	}
}

// answering takes one update, and answers that all is well, signed only if it is to be.
func answering(t *testing.T, signed bool) Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secret := base64.StdEncoding.EncodeToString([]byte("secret"))
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{Listener: listener, TsigSecret: map[string]string{"k.": secret},
		MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if signed {
			m.SetTsig("k.", dns.HmacSHA256, fudge, time.Now().Unix())
		}
		w.WriteMsg(m) //nolint:errcheck // the client says
	})
	ended := make(chan struct{})
	go func() { server.ActivateAndServe(); close(ended) }() //nolint:errcheck // it ends with the test
	t.Cleanup(func() {
		listener.Close()
		<-ended
	})
	return Config{Server: listener.Addr().String(), Zone: zone, Key: Key{Name: "k", File: file}}
}

// TestAnswerIsSigned: who does not have the key cannot say that an update was taken (RFC 8945 §5.3).
func TestAnswerIsSigned(t *testing.T) {
	for _, signed := range []bool{true, false} {
		err := answering(t, signed).Update(t.Context(), "web", addrs("10.1.1.10"))
		if signed != (err == nil) || err != nil && !strings.Contains(err.Error(), "not signed") {
			t.Errorf("signed %v: %v", signed, err)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Config{Server: "192.0.2.53", Zone: zone, Key: Key{Name: "k", File: "f"}}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Server = "fd00::53" }, ""},
		{func(c *Config) { c.Server = "[fd00::53]:5353" }, ""},
		{func(c *Config) { c.Name = "{guest}.vm" }, ""},
		{func(c *Config) { c.Name = "www.example.test." }, ""},
		{func(c *Config) { c.Server = "" }, "server is missing"},
		{func(c *Config) { c.Server = "ns.example.test" }, "not an address"},
		{func(c *Config) { c.Name = "www.example.org." }, "not in the zone"},
		{func(c *Config) { c.Key.Algorithm = "hmac-md5" }, "is unknown"},
		{func(c *Config) { c.TTL = -time.Second }, "ttl"},
		{func(c *Config) { c.Key.File = "" }, "key.file is missing"},
	} {
		config := good
		c.change(&config)
		err := config.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", config, err, c.want)
		}
	}
	if got := good.NameOf("Web"); got != "web.example.test." {
		t.Errorf("name %q", got)
	}
}

// TestClocksApart: a server that does not say what its clock shows, or nothing that can be one, differs from this host's.
func TestClocksApart(t *testing.T) {
	now := time.Unix(1000, 0)
	for other, want := range map[string]string{
		"": "its clock and this host's differ", "00": "its clock and this host's differ", "zzzzzzzzzzzz": "its clock and this host's differ",
		"0000000003e8": "its clock shows 1970-01-01 00:16:40 UTC, and is 0s ahead of this host's",
		"000000000000": "its clock shows 1970-01-01 00:00:00 UTC, and is 16m40s behind this host's",
	} {
		if got := clocks(&dns.TSIG{OtherData: other}, now); got != want {
			t.Errorf("%q: %s, want %s", other, got, want)
		}
	}
}
