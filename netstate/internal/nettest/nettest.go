// Package nettest builds small networks of namespaces for the tests of netstate.
package nettest

import (
	"crypto/rand"
	"encoding/hex"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// A Net is a set of namespaces that ends with the test.
type Net struct {
	t  testing.TB
	id string
}

// New makes the namespaces, with loopback up and IPv6 addresses usable at once.
func New(t testing.TB, names ...string) *Net {
	t.Helper()
	need.Root(t)
	need.Program(t, "ip")
	b := make([]byte, 2)
	rand.Read(b)
	n := &Net{t: t, id: "t-" + hex.EncodeToString(b) + "-"}
	for _, name := range names {
		if err := netns.Create(n.Name(name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(n.Name(name)) })
		n.IP(name, "link set lo up")
		for _, k := range []string{"ipv4/ip_forward=1", "ipv4/conf/all/rp_filter=0", "ipv4/conf/default/rp_filter=0", "ipv6/conf/default/accept_dad=0", "ipv6/conf/default/accept_ra=0"} {
			key, value, _ := strings.Cut(k, "=")
			n.Run(name, "sh", "-c", "echo "+value+" > /proc/sys/net/"+key)
		}
	}
	return n
}

// Name is the real name of a namespace.
func (n *Net) Name(name string) string { return n.id + name }

// Do runs f inside, and fails the test if it fails.
func (n *Net) Do(name string, f func() error) {
	n.t.Helper()
	if err := netns.Do(n.Name(name), f); err != nil {
		n.t.Fatalf("in %s: %v", name, err)
	}
}

// IP runs ip(8) inside, one command per line.
func (n *Net) IP(name, lines string) {
	n.t.Helper()
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 0 {
			n.command("ip", append([]string{"-n", n.Name(name)}, fields...)...)
		}
	}
}

// Run runs a program inside and returns what it printed.
func (n *Net) Run(name, program string, args ...string) string {
	n.t.Helper()
	return n.command("ip", append([]string{"netns", "exec", n.Name(name), program}, args...)...)
}

// Try is Run that may fail.
func (n *Net) Try(name, program string, args ...string) (string, error) {
	out, err := exec.Command("ip", append([]string{"netns", "exec", n.Name(name), program}, args...)...).CombinedOutput()
	return string(out), err
}

// Wire joins two namespaces by a veth pair, both ends up.
func (n *Net) Wire(a, deva, b, devb string) {
	n.t.Helper()
	n.command("ip", "link", "add", "name", deva, "netns", n.Name(a), "type", "veth", "peer", "name", devb, "netns", n.Name(b))
	n.IP(a, "link set dev "+deva+" up")
	n.IP(b, "link set dev "+devb+" up")
}

func (n *Net) command(program string, args ...string) string {
	n.t.Helper()
	var said strings.Builder // ip(8) warns there of namespaces that end meanwhile, of other tests
	cmd := exec.Command(program, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("%s %s: %v: %s%s", program, strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

// Eventually waits for what must become true soon.
func Eventually(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
