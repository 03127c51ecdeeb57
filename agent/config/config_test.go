package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
)

const wholeConfig = `host: paris-1
site: paris
state: /var/lib/godwit
run: /run/godwit
tls: {ca: ca.pem, cert: paris-1.pem, key: paris-1.key}
network:
  bridge: br-guest
  lan: lan0
  v4: 10.1.1.0/24
  gateway4: 10.1.1.1
uplinks:
  - {name: public, address: 100.64.0.11, rate: 350000000}
  - {name: private, address: 100.64.1.11}
  - {name: spare, address: 100.64.2.11, carries: guest}
peers:
  - host: rome-1
    site: rome
    v4: 10.2.1.0/24
    uplinks: [{name: public, address: 100.65.0.11}]
  - {host: paris-2, site: paris}
  - {host: rome-2, site: rome}
`

func load(t *testing.T, text string) (*Config, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	return c, path, err
}

func TestLoadConfigFillsIn(t *testing.T) {
	c, _, err := load(t, wholeConfig)
	if err != nil {
		t.Fatal(err)
	}
	if c.Port != peer.DefaultPort || c.Network.First != 10 || c.Network.MTU != 1500 {
		t.Errorf("port %d, first %d, mtu %d", c.Port, c.Network.First, c.Network.MTU)
	}
	for i, want := range []struct{ guests, migrations bool }{{true, true}, {false, true}, {true, false}} {
		if u := c.Uplinks[i]; u.guests() != want.guests || u.migrations() != want.migrations {
			t.Errorf("uplink %s carries %s", u.Name, u.Carries)
		}
	}
	if got := c.Peers[0].Uplinks[0].Carries; got != "both" {
		t.Errorf("a neighbour's first uplink carries %q", got)
	}
	if c.Network.V4.String() != "10.1.1.0/24" || c.Uplinks[0].Rate != 350_000_000 {
		t.Errorf("%+v", c)
	}
}

func TestLoadConfigErrors(t *testing.T) {
	with := func(old, new string) string {
		t.Helper()
		if !strings.Contains(wholeConfig, old) {
			t.Fatalf("no %q in the example", old)
		}
		return strings.Replace(wholeConfig, old, new, 1)
	}
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", with("state:", "stat:"), ":3:1: "},
		{"unknown key, deeper", with("  lan:", "  lane:"), ":8:3: "},
		{"unknown key in a list", with("rate: 350000000", "speed: 350000000"), ":12:42: "},
		{"twice the same key", with("site: paris\n", "site: paris\nsite: rome\n"), ":3:1: "},
		{"a word for a number", with("rate: 350000000", "rate: fast"), ":12:48: "},
		{"metrics without a port", with("state:", "metrics: 192.0.2.1:0\nstate:"), `metrics "192.0.2.1:0": it must be an address and a port`},
		{"metrics without an address", with("state:", "metrics: :9470\nstate:"), `metrics ":9470": it must be`},
		{"an unknown unit", with("rate: 350000000", "rate: 350mb"), `:12:48: rate "350mb": unknown unit`},
		{"a negative rate", with("rate: 350000000", "rate: -1"), ":12:6: uplinks[0] public: rate of -1 bit/s"},
		{"a time in words", with("state:", "lease: 5 minutes\nstate:"), ":3:8: lease: not a time; give it a unit, such as 20s"},
		{"a time out of bounds", with("state:", "lease: 999h\nstate:"), ":3:8: lease of 999h0m0s; 1s to 720h0m0s"},
		{"no lease", with("state:", "lease: 0s\nstate:"), ":3:8: lease of 0s; 1s to 720h0m0s"},
		{"no patience", with("state:", "patience: 0s\nstate:"), ":3:11: patience of 0s; at least 1s"},
		{"a subnet without its size", with("v4: 10.1.1.0/24", "v4: 10.1.1.0"), ":9:7: v4: not a subnet; such as 10.1.1.0/24"},
		{"an address in words", with("address: 100.64.1.11", "address: here"), "address: not an address; such as 192.0.2.10"},
		{"packets too small", with("gateway4: 10.1.1.1", "mtu: 500"), ":10:8: network.mtu of 500 bytes; 576 to 65000"},
		{"packets too small for IPv6", with("gateway4: 10.1.1.1", "v6: fd00:1::/64\n  mtu: 1000"), ":11:8: network.mtu of 1000 bytes; 1280 to 65000"},
		{"packets too large", with("gateway4: 10.1.1.1", "mtu: 65536"), "network.mtu of 65536 bytes; 576 to 65000"},
		{"a negative MTU", with("gateway4: 10.1.1.1", "mtu: -1"), "network.mtu of -1 bytes"},
		{"a host of two words", with("host: paris-1", "host: paris 1"), `:1:7: host "paris 1": it must be one word`},
		{"a site that is a path", with("site: paris", "site: ../paris"), `:2:7: site "../paris": it must be one word`},
		{"another host that is a path", with("host: rome-1", "host: rome/1"), `:16:5: peers[0]: host "rome/1", site "rome": each must be one word`},
		{"another's subnet of the other family", with("v4: 10.2.1.0/24", "v4: fd00:2::/64"), ":18:9: peers[0].v4 fd00:2::/64: it is of the other family"},
		{"what nothing carries", with("carries: guest", "carries: guests"), `uplinks[2] spare: carries "guests" is unknown; allowed: guest, migration, both`},
		{"an uplink twice", with("name: private", "name: public"), "uplinks[1]: name public is used twice"},
		{"two uplinks of one address", with("100.64.1.11", "'::ffff:100.64.0.11'"), "uplinks[1] private: address ::ffff:100.64.0.11 is that of uplink public"},
		{"an uplink without a name", with("name: private, ", ""), "uplinks[1]: its name is missing"},
		{"an uplink without an address", with(", address: 100.64.1.11", ""), "uplinks[1] private: its address is missing"},
		{"a peer twice", with("host: paris-2", "host: rome-1"), "peers[1]: host rome-1 is named twice"},
		{"itself as a peer", with("host: paris-2", "host: paris-1"), "peers[1]: host paris-1 is named twice"},
		{"a subnet agent that nobody knows", with("state:", "subnet_agent: rome-9\nstate:"), "subnet_agent rome-9: no host of peers has that name"},
		{"a site as subnet agent", with("state:", "subnet_agent: paris\nstate:"), "subnet_agent paris: no host of peers has that name"},
		{"itself as subnet agent", with("state:", "subnet_agent: paris-1\nstate:"), "subnet_agent paris-1: no host of peers has that name"},
		{"a subnet agent of another site", with("state:", "subnet_agent: rome-1\nstate:"), "subnet_agent rome-1: it is of site rome, and not of paris"},
		{"no certificate", with(", cert: paris-1.pem", ""), "tls.cert is missing"},
		{"no key", with(", key: paris-1.key", ""), "tls.key is missing"},
		{"all of tls", with("tls: {ca: ca.pem, cert: paris-1.pem, key: paris-1.key}\n", ""), "tls.ca is missing"},
		{"two documents", wholeConfig + "---\nhost: x\n", "second document"},
		{"an address that is none", with("100.64.1.11", "100.64.1.1111"), ":13:30: "},
		{"not yaml", with("peers:\n", "peers: ]\n"), ":15:"},
		{"no host", with("host: paris-1\n", ""), "host is missing"},
		{"no bridge", with("  bridge: br-guest\n", ""), "network.bridge is missing"},
		{"no ca", with("ca: ca.pem, ", ""), "tls.ca is missing"},
		{"no subnet", with("  v4: 10.1.1.0/24\n", ""), "neither v4 nor v6"},
		{"a fence that is no path", with("state:", "fence: fence.sh\nstate:"), "fence fence.sh: it must be an absolute path"},
		{"a gateway of elsewhere", with("gateway4: 10.1.1.1", "gateway4: 10.9.1.1"), "network.gateway4 10.9.1.1: not in the guests' subnet 10.1.1.0/24"},
		{"a gateway of the other family", with("gateway4: 10.1.1.1", "gateway4: fd00::1"), "network.gateway4 fd00::1: it must be an address of IPv4"},
		{"a router of IPv6 of elsewhere", with("gateway4: 10.1.1.1", "v6: fd00:1::/64\n  gateway6: fd00:2::1"), "network.gateway6 fd00:2::1: not in the guests' subnet fd00:1::/64"},
		{"a host's address for the subnet", with("v4: 10.1.1.0/24", "v4: 10.1.1.7/24"), "network.v4 10.1.1.7/24: not the start of its subnet, which is 10.1.1.0/24"},
		{"a subnet of the other family", with("v4: 10.1.1.0/24", "v4: fd00:1::/64"), "network.v4 fd00:1::/64: it is of the other family"},
		{"state somewhere below", with("/var/lib/godwit", "var/lib/godwit"), "state var/lib/godwit: it must be an absolute path"},
		{"run where no socket's path has room", with("/run/godwit", "/run/"+strings.Repeat("x", 75)), ":4:6: run /run/xxx"},
		{"run somewhere below", with("/run/godwit", "./run"), "run ./run: it must be an absolute path"},
		{"no uplink", wholeConfig[:strings.Index(wholeConfig, "uplinks:")], "no uplink"},
		{"nothing", "", "it is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, path, err := load(t, c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: want %q and the path, in one line", err, c.want)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

// What is no time, number or list is told by its key, not by a type of Go.
// TestHooksOfARelativeFile: hooks run in /, so where they are does not depend on where the agent was started.
func TestHooksOfARelativeFile(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("agent.yaml", []byte(wholeConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load("agent.yaml")
	if err != nil || c.Hooks.Dir != filepath.Join(here, "hooks.d") || len(c.Missing()) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, _, err := load(t, wholeConfig+"hooks: {dir: hooks.d}\n"); err == nil || !strings.Contains(err.Error(), ":22:14: hooks.dir hooks.d: it must be an absolute path") {
		t.Errorf("a directory that depends on where the agent was started: %v", err)
	}
}

// TestMissing: what only a bad day needs is missed at once.
func TestMissing(t *testing.T) {
	dir := t.TempDir()
	plain, fence := filepath.Join(dir, "plain"), filepath.Join(dir, "fence")
	for path, mode := range map[string]os.FileMode{plain: 0o600, fence: 0o700} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for more, want := range map[string][]string{
		"fence: " + fence + "\nhooks: {dir: " + dir + "}\n":      nil,
		"fence: " + plain + "\n":                                 {"fence " + plain + ": not executable"},
		"fence: " + dir + "/none\nhooks: {dir: " + plain + "}\n": {"hooks.dir " + plain + ": no such directory", "fence " + dir + "/none: no such file"},
	} {
		c, _, err := load(t, wholeConfig+more)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Missing()
		for i, w := range want {
			if len(got) != len(want) || !strings.HasPrefix(got[i], w) {
				t.Errorf("%q: %q, want %q", more, got, want)
				break
			}
		}
		if len(want) == 0 && len(got) > 0 {
			t.Errorf("%q: %q", more, got)
		}
	}
}

// TestMissingEvent: so is a folder of hooks that is called as no event is, in which none is ever called. Others'
// folders are their own.
func TestMissingEvent(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"PRE_SOURCE_SUSPEND.d", "MIGRATION_DON.d", "PRE_SOURCE_SUSPEND", "lib.d", "lib"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c, _, err := load(t, wholeConfig+"hooks: {dir: "+dir+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "hooks in " + dir + "/MIGRATION_DON.d: no event has that name"
	if got := c.Missing(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLoadConfigSaysWhatATypeIs(t *testing.T) {
	for line, want := range map[string]string{
		"lease: 5":            "lease: not a time; give it a unit, such as",
		"patience: [20s]":     "patience: not a time",
		"throttle_most: x":    "throttle_most: not a whole number",
		"lease: 5x":           "lease: not a time; give it a unit",
		"port: 70000":         "port: too large",
		"routes: {direct: 3}": "direct: neither true nor false",
	} {
		_, path, err := load(t, wholeConfig+"\n"+line+"\n")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want %q", line, err, want)
		}
	}
}

func TestLoadConfigTakesUnits(t *testing.T) {
	for _, rate := range []string{"350mbit", "350000000.0", "3.5e8", "0.35 gbit"} {
		c, _, err := load(t, strings.Replace(wholeConfig, "rate: 350000000", "rate: "+rate, 1))
		if err != nil || c.Uplinks[0].Rate != 350_000_000 {
			t.Errorf("%s: %+v, %v", rate, c, err)
		}
	}
}

// TestLoadConfigAsEditorsWriteIt: a mark of the byte order before a file, and lines that end as elsewhere, are no part
// of what it says.
func TestLoadConfigAsEditorsWriteIt(t *testing.T) {
	for _, text := range []string{"\ufeff" + wholeConfig, "\ufeff# Zürich\n" + wholeConfig, strings.ReplaceAll(wholeConfig, "\n", "\r\n")} {
		if c, _, err := load(t, text); err != nil || c.Host != "paris-1" {
			t.Errorf("%.40q: %+v, %v", text, c, err)
		}
	}
}

// TestTabIsNamed: a tab is called one, where a line begins with it.
func TestTabIsNamed(t *testing.T) {
	for _, text := range []string{wholeConfig + "\tport: 1\n", strings.Replace(wholeConfig, "  bridge:", "\tbridge:", 1)} {
		if _, _, err := load(t, text); err == nil || !strings.HasSuffix(err.Error(), ": a tab where a line is indented; allowed: spaces there") {
			t.Errorf("%v", err)
		}
	}
}

func TestConfigFind(t *testing.T) {
	c, _, err := load(t, wholeConfig)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"rome-2": "rome-2",
		"rome":   "rome-1",
		"rome-1": "rome-1",
		"paris":  "paris-2", // another host of its own site
		"berlin": "",
	} {
		if n, ok := c.Find(name); n.Host != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", name, n.Host, ok, want)
		}
	}
}

func TestKeepMemoryInConfig(t *testing.T) {
	for text, want := range map[string]int64{"": defaultReserve, "memory_reserve: 0\n": 0, "memory_reserve:\n": defaultReserve} {
		if c, _, err := load(t, wholeConfig+text); err != nil || c.MemoryReserve != want {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "lease:\npatience:\n"} {
		if c, _, err := load(t, wholeConfig+text); err != nil || c.LeaseTime() != DefaultLease || c.Patience != defaultPatience {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	for text, want := range map[string]int64{"": 0, "keep_memory: 0\n": 0, "keep_memory: 2GiB\n": 2 << 30} {
		c, _, err := load(t, wholeConfig+text)
		if err != nil || c.KeepMemory != want {
			t.Errorf("%q: %d, %v", text, c.KeepMemory, err)
		}
	}
	for _, text := range []string{"keep_memory: -1\n", "keep_memory_for: -1s\n", "lease: -1s\n", "lease: 10ms\n", "lease: 1000h\n"} {
		if _, _, err := load(t, wholeConfig+text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// TestThrottleMost: mode precopy alone throttles, where that was asked for, as far as the
// budget and the host's owner allow.
func TestThrottleMost(t *testing.T) {
	for _, c := range []struct {
		line, mode string
		want       int
	}{
		{"", "precopy", 90}, {"", "hybrid", 0}, {"", "postcopy", 0}, {"", "auto", 0},
		{"throttle_most: 60\n", "precopy", 60}, {"throttle_most: 0\n", "precopy", 0}, {"throttle_most: 99\n", "precopy", 90},
	} {
		config, _, err := load(t, wholeConfig+c.line)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.MostThrottle(migration.Plan{Mode: c.mode, Throttle: 99, Downtime: 300 * time.Millisecond}); got != c.want {
			t.Errorf("%q, mode %s: %d %%, want %d %%", c.line, c.mode, got, c.want)
		}
	}
	if got := new(Config).MostThrottle(migration.Plan{Mode: "precopy", Downtime: time.Second}); got != 0 {
		t.Errorf("not asked for: %d %%", got)
	}
	for _, line := range []string{"throttle_most: -1\n", "throttle_most: 100\n", "throttle_most: never\n"} {
		if _, _, err := load(t, wholeConfig+line); err == nil || !strings.Contains(err.Error(), "throttle_most") && !strings.Contains(line, "never") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestRoutesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"routes: {table: 6700, direct: true}\n": "", "routes: {table: 254}\n": "table 254", "routes: {}\n": "table 0", "routes: {table: 6700, as: 1}\n": `"as"`,
	} {
		_, _, err := load(t, wholeConfig+text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
