// Package nettest builds small networks of namespaces for the tests of netstate.
package nettest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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
	once()
	b := make([]byte, 2)
	rand.Read(b)
	n := &Net{t: t, id: fmt.Sprintf("%s%d-%x-", prefix, os.Getpid(), b)}
	for _, name := range names {
		if err := netns.Create(n.Name(name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(n.Name(name)) })
		n.up(name, "lo")
		n.Sysctl(name, "ipv4/ip_forward=1", "ipv4/conf/all/rp_filter=0", "ipv4/conf/default/rp_filter=0", "ipv6/conf/default/accept_dad=0", "ipv6/conf/default/accept_ra=0")
	}
	return n
}

// prefix begins the names of all; the process that makes them follows.
const prefix = "t-net-"

// once is for all tests of a process.
var once = sync.OnceFunc(sweep)

// sweep takes away what a process left that was killed, as one is by its time limit, before it could do so itself.
func sweep() {
	names, _ := netns.List(prefix) //nolint:errcheck // the next one finds them
	for _, name := range names {
		pid, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(unix.Kill(n, 0), unix.ESRCH) {
			_ = netns.Delete(name) // another one may do so, too
		}
	}
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

// Sysctl sets what is said as path=value, below /proc/sys/net.
func (n *Net) Sysctl(name string, settings ...string) {
	n.t.Helper()
	n.Do(name, func() (err error) {
		for _, s := range settings {
			key, value, _ := strings.Cut(s, "=")
			err = errors.Join(err, netns.Sysctl("net/"+key, value))
		}
		return err
	})
}

// IP runs ip(8) inside, one command per line: in one process, unless some have options, which that does not take.
func (n *Net) IP(name, lines string) {
	n.t.Helper()
	if !strings.Contains("\n"+lines, "\n-") {
		n.run(name, exec.Command("ip", "-batch", "-"), lines)
		n.usable(name, lines)
		return
	}
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 0 {
			n.run(name, exec.Command("ip", fields...), "")
		}
	}
}

// usable waits until IPv6 addresses that lines add take packets in: the kernel makes their local routes a moment later,
// and until then drops what comes. Those of a device that is down have none.
func (n *Net) usable(name, lines string) {
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "addr" || words[1] != "add" || !slices.Contains(words, "nodad") {
			continue
		}
		prefix, err := netip.ParsePrefix(words[2])
		if err != nil || prefix.Addr().IsLinkLocalUnicast() { // of which each device has its own
			continue
		}
		local := false
		for p := need.Patient(time.Second); !local && !p.Over(); time.Sleep(time.Millisecond) {
			n.Do(name, func() error {
				routes, err := netlink.RouteGet(prefix.Addr().AsSlice())
				local = err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
				return nil
			})
		}
	}
}

// Run runs a program inside and returns what it printed.
func (n *Net) Run(name, program string, args ...string) string {
	n.t.Helper()
	return n.run(name, inside(n.Name(name), program, args), "")
}

// Try is Run that may fail.
func (n *Net) Try(name, program string, args ...string) (string, error) {
	var out []byte
	err := netns.Do(n.Name(name), func() (err error) {
		out, err = inside(n.Name(name), program, args).CombinedOutput()
		return err
	})
	return string(out), err
}

// inside is a program for the thread's namespace, name. One that reads /sys has a mount of its own there, by
// ip-netns(8), which takes five times as long.
func inside(name, program string, args []string) *exec.Cmd {
	if strings.Contains(strings.Join(args, " "), "/sys/class/net") {
		return exec.Command("ip", append([]string{"netns", "exec", name, program}, args...)...)
	}
	return exec.Command(program, args...)
}

// Wire joins two namespaces by a veth pair, both ends up.
func (n *Net) Wire(a, deva, b, devb string) {
	n.t.Helper()
	far, err := unix.Open(netns.Path(n.Name(b)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer unix.Close(far)
	n.Do(a, func() error {
		veth := netlink.NewVeth(netlink.NewLinkAttrs())
		veth.Name, veth.PeerName, veth.PeerNamespace = deva, devb, netlink.NsFd(far)
		return netlink.LinkAdd(veth)
	})
	n.up(a, deva)
	n.up(b, devb)
}

// up brings a device up.
func (n *Net) up(name, device string) {
	n.t.Helper()
	n.Do(name, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// run runs a program inside, with what it is to read.
func (n *Net) run(name string, cmd *exec.Cmd, input string) string {
	n.t.Helper()
	var said strings.Builder // ip(8) warns there of namespaces that end meanwhile, of other tests
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &said
	var out []byte
	err := netns.Do(n.Name(name), func() (err error) { out, err = cmd.Output(); return err })
	if err != nil {
		n.t.Fatalf("in %s: %s: %v: %s%s%s", name, strings.Join(cmd.Args, " "), err, input, out, said.String())
	}
	return string(out)
}

// Eventually waits for what must become true soon, by what the machine lets it.
func Eventually(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for p := need.Patient(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if p.Over() {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
