package qga

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/internal/need"
)

// tracked is what a Debian 12 guest with Docker had: a published port, by IPv6 too, what a container asked for, a port
// of the guest's own that goes by another number, a connection that is over, one that names are asked by, one of
// containers' with a service that is no address of the guest's, one that a container began with a service elsewhere,
// one that the guest passes on to another node in its own name, and one of a flow table.
const tracked = `ipv4     2 tcp      6 431999 ESTABLISHED src=10.3.0.2 dst=10.1.1.10 sport=40000 dport=80 src=172.17.0.2 dst=10.3.0.2 sport=8080 dport=40000 [ASSURED] mark=0 zone=0 use=2
ipv6     10 tcp      6 119 FIN_WAIT src=fd00:0003:0000:0000:0000:0000:0000:0002 dst=fd00:0001:0001:0000:0000:0000:0000:000a sport=40001 dport=80 src=fd00:0017:0000:0000:0000:0000:0000:0002 dst=fd00:0003:0000:0000:0000:0000:0000:0002 sport=8080 dport=40001 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=172.17.0.2 dst=10.3.0.9 sport=50000 dport=443 src=10.3.0.9 dst=10.1.1.10 sport=443 dport=50000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=10.3.0.2 dst=10.1.1.10 sport=40002 dport=81 src=10.1.1.10 dst=10.3.0.2 sport=8081 dport=40002 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 100 TIME_WAIT src=10.3.0.2 dst=10.1.1.10 sport=40003 dport=80 src=172.17.0.2 dst=10.3.0.2 sport=8080 dport=40003 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 20 src=172.17.0.2 dst=10.3.0.9 sport=50001 dport=53 src=10.3.0.9 dst=10.1.1.10 sport=53 dport=50001 mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=172.17.0.2 dst=10.96.0.1 sport=50002 dport=443 src=172.17.0.3 dst=172.17.0.2 sport=6443 dport=50002 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=172.17.0.2 dst=10.96.0.2 sport=50003 dport=443 src=10.1.1.11 dst=10.1.1.10 sport=6443 dport=50003 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 300 CLOSE_WAIT src=10.3.0.2 dst=10.1.1.10 sport=40004 dport=30080 src=10.1.1.11 dst=10.1.1.10 sport=8080 dport=40004 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 src=10.3.0.2 dst=10.1.1.10 sport=40005 dport=80 src=172.17.0.2 dst=10.3.0.2 sport=8080 dport=40005 [OFFLOAD] mark=0 zone=0 use=3
`

// TestForwarded: of what is tracked only what others speak to by the addresses asked for is told, which may be tens of
// thousands; by every awk.
func TestForwarded(t *testing.T) {
	need.Program(t, "awk")
	file := filepath.Join(t.TempDir(), "tracked")
	if err := os.WriteFile(file, []byte(tracked), 0o600); err != nil {
		t.Fatal(err)
	}
	own := []netip.Addr{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("fd00:1:1::a")}
	want := []string{"ESTAB 10.1.1.10:80 10.3.0.2:40000 ", "FIN-WAIT-1 [fd00:1:1::a]:80 [fd00:3::2]:40001 ", "ESTAB 10.1.1.10:50000 10.3.0.9:443 outward",
		"ESTAB 10.1.1.10:50003 10.1.1.11:6443 outward", "CLOSE-WAIT 10.1.1.10:30080 10.3.0.2:40004 ", "CLOSE-WAIT 10.1.1.10:40004 10.1.1.11:8080 outward",
		"ESTAB 10.1.1.10:80 10.3.0.2:40005 "}
	for _, awk := range []string{"awk", "busybox", "gawk", "mawk", "original-awk"} {
		at, err := exec.LookPath(awk)
		if err != nil {
			t.Logf("no %s here", awk)
			continue
		}
		dir := t.TempDir()
		if err := os.Symlink(at, filepath.Join(dir, "awk")); err != nil {
			t.Fatal(err)
		}
		for from, want := range map[string][]string{file: want, dir: nil, file + "-not": nil} {
			script := exec.Command("/bin/sh", "-c", "set -e\n"+strings.ReplaceAll(forwardedScript(own), "/proc/net/nf_conntrack", from))
			script.Env = []string{"PATH=" + dir}
			out, err := script.Output()
			if err != nil {
				t.Errorf("%s, %s: %v", awk, from, err)
			}
			table, err := parseSockets("udp\n" + string(out))
			if err != nil {
				t.Errorf("%s: %v", awk, err)
			}
			var got []string
			for _, s := range table.tcp {
				got = append(got, s.state+" "+s.local.String()+" "+s.remote.String()+" "+map[bool]string{true: "outward"}[s.outward])
			}
			if !slices.Equal(got, want) || len(table.udp) > 0 {
				t.Errorf("%s: got %q, want %q", awk, got, want)
			}
		}
	}
}
