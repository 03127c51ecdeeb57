package agent

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
)

// TestExamplesAreTaken: what docs/agent.md shows can be copied.
func TestExamplesAreTaken(t *testing.T) {
	text, err := os.ReadFile("../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(# [a-z]+: /etc/godwit/agent.yaml\n.*?)```").FindAllSubmatch(text, -1) {
		if _, _, err := load(t, string(m[1])); err != nil {
			t.Error(err)
		}
		taken++
	}
	if taken != 2 {
		t.Errorf("%d examples, not two", taken)
	}
}

// TestARouterOfTheLinkIsTaken: routers of IPv6 may have an address of the link alone.
func TestARouterOfTheLinkIsTaken(t *testing.T) {
	if _, _, err := load(t, strings.Replace(wholeConfig, "gateway4: 10.1.1.1", "gateway4: 10.1.1.1\n  v6: fd00:1::/64\n  gateway6: fe80::1", 1)); err != nil {
		t.Error(err)
	}
}

// TestAnotherHostsCertificate: an agent does not begin as somebody that nobody takes it for.
func TestAnotherHostsCertificate(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("rome", time.Now()); err != nil {
		t.Fatal(err)
	}
	c := &Config{State: t.TempDir(), Run: t.TempDir(), TLS: TLSFiles{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "rome.pem"), Key: filepath.Join(dir, "rome.key"),
	}}
	for host, want := range map[string]string{"rome": "", "paris": `rome.pem is host "rome"'s, and this configuration is for host paris`} {
		c.Host = host
		_, err := New(c, slog.New(slog.DiscardHandler))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}

// TestWarnings: an agent begins where a bridge is not there yet or its certificate has ended, and says so.
func TestWarnings(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue("paris", time.Now().AddDate(-1, 0, -1)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	a, err := New(&Config{Host: "paris", Network: Network{Bridge: "no-bridge", LAN: "no-lan"}, TLS: TLSFiles{
		CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "paris.pem"), Key: filepath.Join(dir, "paris.key"),
	}}, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	a.warnOfHost()
	for _, want := range []string{"network.bridge no-bridge: no such device", "network.lan no-lan: no such device", "expired"} {
		if n := strings.Count(said.String(), want); n != 1 {
			t.Errorf("%q was said %d times:\n%s", want, n, said.String())
		}
	}
}

// TestMissingOfTheNetwork: devices that are not there, and a lan that is no port of the bridge.
func TestMissingOfTheNetwork(t *testing.T) {
	if _, err := net.InterfaceByName("lo"); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ bridge, lan, want string }{
		{"no-bridge", "no-lan", "network.bridge no-bridge: no such device|network.lan no-lan: no such device"},
		{"no-bridge", "lo", "network.bridge no-bridge: no such device"},
		{"lo", "no-lan", "network.lan no-lan: no such device"},
		{"lo", "lo", "network.lan lo: it is a port of no bridge, and must be one of lo"},
	} {
		if got := strings.Join(Network{Bridge: c.bridge, LAN: c.lan}.Missing(), "|"); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.bridge, c.lan, got, c.want)
		}
	}
}
