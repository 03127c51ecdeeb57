package qga

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/vm/guest"
)

// seen is what a Debian 12 guest listed after a move: one connection with a subflow on
// both addresses, one that is behind, a plain one, one that fell back, IPv6.
const seen = `ESTAB 10.1.1.10:7001 10.3.0.2:40000 token:1a2b3c4d(id:0)/77e0c1d2(id:0) rtt:43.125/2.1
ESTAB 10.2.1.10:7001 10.3.0.2:40001 token:1a2b3c4d(id:0)/77e0c1d2(id:3) rtt:0.5/0.25
ESTAB [::ffff:10.1.1.10]:80 [::ffff:10.3.0.2]:40002 token:0badcafe(id:0)/5eed5eed(id:0) -
ESTAB 10.1.1.10:22 10.3.0.2:40003 - rtt:900/1
CLOSE-WAIT 10.1.1.10:6379 10.3.0.2:40004 token:0000(id:0)/0000(id:0) rtt:70/1
ESTAB [fe80::1%enp0s3]:80 [fe80::2]:40005 - rtt:1/1
SYN-SENT 127.0.0.1:9 *:* - -
udp
ESTAB 10.1.1.10:5000 10.3.0.2:5001 - -
`

func TestParseSockets(t *testing.T) {
	table, err := parseSockets(seen)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.tcp) != 6 || len(table.udp) != 1 {
		t.Fatalf("got %d of TCP and %d of UDP, want 6 and 1: %+v", len(table.tcp), len(table.udp), table)
	}
	old, next := []netip.Addr{netip.MustParseAddr("10.1.1.10")}, []netip.Addr{netip.MustParseAddr("10.2.1.10")}
	for name, behind := range map[string]map[string]socket{
		"without a subflow on the next address": table.behind(old, next),
		"with nothing but the old address":      table.behind(old, nil),
	} {
		if s, ok := behind["5eed5eed"]; len(behind) != 1 || !ok || s.local.String() != "10.1.1.10:80" {
			t.Errorf("%s: %+v", name, behind)
		}
	}
	if joined := table.joined(next); len(joined) != 1 || !joined["77e0c1d2"] {
		t.Errorf("joined: %v", joined)
	}
	if rtt := table.slowest(old); rtt != 43125*time.Microsecond {
		t.Errorf("the slowest subflow on the old address has an RTT of %v", rtt)
	}
	plain := slices.DeleteFunc(slices.Clone(table.tcp), func(s socket) bool { return s.token != "" })
	if len(plain) != 3 { // ssh, the one that fell back, IPv6
		t.Errorf("plain: %+v", plain)
	}
}

func TestParseSocketsDistrusts(t *testing.T) {
	for _, text := range []string{"ESTAB", "a b c d", "a b c d e f", "\x00"} {
		if table, err := parseSockets(text); err == nil {
			t.Errorf("%q: %+v", text, table)
		}
	}
	if table, err := parseSockets(""); err == nil && len(table.tcp) > 0 {
		t.Errorf("nothing: %+v", table)
	}
}

// TestRTT: an old NIC stays up for as long as the answers of peers take, and not for ever.
func TestRTT(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"rtt:43.125/2.1": 43125 * time.Microsecond, "rtt:7": 7 * time.Millisecond, "-": 0, "rtt:": 0, "rtt:NaN/1": 0, "rtt:-4/1": 0, "rtt:1e300/1": 0,
	} {
		if got := rttOf(word); got != want {
			t.Errorf("%s: %v, want %v", word, got, want)
		}
	}
	for rtt, want := range map[time.Duration]string{0: "sleep 0.200\n", 100 * time.Millisecond: "sleep 0.450\n", time.Hour: "sleep 1.200\n"} {
		script, err := retireScript(guest.Retire{MAC: "52:54:00:00:01:0a"}, nil, rtt)
		if err != nil || !strings.Contains(script, want) {
			t.Errorf("RTT %v: %v; want %q in %s", rtt, err, want, script)
		}
	}
}

// TestNeeded: where one connection has nothing but an old address, another that is left with it is withdrawn all the same.
func TestNeeded(t *testing.T) {
	table, err := parseSockets(seen)
	if err != nil {
		t.Fatal(err)
	}
	mac, first, second := "52:54:00:00:01:0a", netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	last := netip.MustParseAddr("10.2.1.11")
	for name, c := range map[string]struct{ addrs, want []netip.Addr }{
		"one needs the first":         {[]netip.Addr{first, last}, []netip.Addr{first}},
		"and another any of the two":  {[]netip.Addr{second, first}, []netip.Addr{first, second}},
		"all are on the other also":   {[]netip.Addr{last}, nil},
		"nobody has nothing but that": {[]netip.Addr{second}, nil},
	} {
		needed, _ := table.needed(c.addrs)
		if !slices.Equal(needed, c.want) {
			t.Errorf("%s: %v are needed, want %v", name, needed, c.want)
		}
		script, err := retireScript(guest.Retire{MAC: mac, NewMAC: mac, Addrs: c.addrs, Keep: true, Stay: true}, needed, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range c.addrs {
			if withdrawn := strings.Contains(script, "\nwithdraw "+addr.String()+"\n"); withdrawn == slices.Contains(c.want, addr) {
				t.Errorf("%s: %s withdrawn: %v", name, addr, withdrawn)
			}
		}
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add(seen)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parseSockets(text)
		if err != nil {
			return
		}
		for _, s := range append(table.tcp, table.udp...) {
			if !s.local.IsValid() || !s.remote.IsValid() {
				t.Errorf("%q: %+v", text, s)
			}
		}
	})
}

// TestNoListIsNoEmptyList: a guest whose ss is missing, or too old, has not said that it has no connections.
func TestNoListIsNoEmptyList(t *testing.T) {
	need.Program(t, "awk")
	awk, err := exec.LookPath("awk")
	if err != nil {
		t.Fatal(err)
	}
	for name, ss := range map[string]string{
		"no ss": "", "one that knows no such option": "echo 'ss: invalid option' >&2; exit 255",
		"one that lists no UDP": `case $1 in *u*) exit 1;; esac; echo ESTAB 0 0 10.1.1.1:2 10.1.1.2:3`, "nobody": "exit 0",
	} {
		dir := t.TempDir()
		if err := os.Symlink(awk, filepath.Join(dir, "awk")); err != nil {
			t.Fatal(err)
		}
		if ss != "" {
			if err := os.WriteFile(filepath.Join(dir, "ss"), []byte("#!/bin/sh\n"+ss+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		script := exec.Command("/bin/sh", "-c", socketScript)
		script.Env = []string{"PATH=" + dir}
		out, err := script.Output()
		if name != "nobody" {
			if err == nil {
				t.Errorf("%s: listed %q", name, out)
			}
			continue
		}
		table, perr := parseSockets(string(out))
		if err != nil || perr != nil || len(table.tcp)+len(table.udp) > 0 {
			t.Errorf("%s: %+v, %v, %v", name, table, err, perr)
		}
	}
}
