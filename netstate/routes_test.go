package netstate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// upstream is a router's part of packaging/bird.conf.
const upstream = `router id 100.65.0.1;
protocol device { scan time 10; }
protocol kernel { scan time 10; ipv4 { export all; import none; }; }
protocol kernel { scan time 10; ipv6 { export all; import none; }; }
protocol bgp host4 { local 100.65.0.1 as 65000; neighbor 100.65.0.11 as 65002; ipv4 { import all; export none; }; }
protocol bgp host6 { local fd64:1::1 as 65000; neighbor fd64:1::11 as 65002; ipv6 { import all; export none; }; }
`

// TestPublished: with a real speaker of BGP on the host and on the router, a visiting
// address is announced as long as it is published, and its packets need no tunnel then.
func TestPublished(t *testing.T) {
	need.Program(t, "bird")
	w := newWorld(t, "vxlan")
	w.Run("r", "nft", "flush", "ruleset") // the operator owns the routes: either site may send from these addresses
	w.IP("ga", "link set dev eth0 down")  // nobody is at home
	w.echo("gb")
	for key, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"} {
		w.Run("hb", "sh", "-c", "echo "+value+" >/proc/sys/net/"+key)
	}
	ours, err := os.ReadFile("../packaging/bird.conf")
	if err != nil {
		t.Fatal(err)
	}
	before := w.dumps()["hb"]
	w.set("hb", abroad())
	w.bird("r", upstream)
	w.bird("hb", string(ours))

	published := abroad()
	for i := range published.Visiting {
		published.Visiting[i].Publish, published.Visiting[i].Direct = 6700, true
	}
	for range 2 {
		w.set("hb", published)
		w.learnt(true)
		tunnelled := w.sent("hb", "gw0")
		for _, v := range published.Visiting {
			if !w.answers(v.Addr, 3*time.Second) {
				t.Errorf("%s does not answer, with its route published", v.Addr)
			}
		}
		if now := w.sent("hb", "gw0"); now != tunnelled {
			t.Errorf("answers took the tunnel: %s packets before, %s after", tunnelled, now)
		}
		w.set("hb", abroad())
		w.learnt(false)
	}
	w.set("hb", published)
	w.learnt(true)
	home := abroad()
	for i, v := range published.Visiting { // it goes home by another tunnel: to the guest's next host, where there is none here
		v.Leaves, v.Active = "gw0", true
		home.Visiting[i] = v
	}
	w.set("hb", home)
	w.learnt(false)
	w.set("hb", published) // and does not go
	w.learnt(true)
	w.Do("hb", func() error { return netstate.Clear("web") })
	w.learnt(false)
	w.like(before, "hb", "after Clear")
	w.Run("hb", "sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward")
	w.Do("hb", func() error {
		if err := netstate.Set(published); err == nil || !strings.Contains(err.Error(), "forwards nothing") {
			t.Errorf("published on a host that does not forward: %v", err)
		}
		return netstate.Clear("web")
	})
}

// sent is how many packets left by a device.
func (w *world) sent(ns, device string) string {
	return strings.TrimSpace(w.Run(ns, "cat", "/sys/class/net/"+device+"/statistics/tx_packets"))
}

// learnt waits until the router has host routes of the guest, or has none.
func (w *world) learnt(want bool) {
	w.t.Helper()
	for _, show := range [][]string{{"-4", "route", "show", "10.1.1.5/32"}, {"-6", "route", "show", "fd00:1:1::5/128"}} {
		nettest.Eventually(w.t, "the router follows what is published: "+strings.Join(show, " "), 30*time.Second, func() bool {
			return strings.Contains(w.Run("r", "ip", show...), "proto bird") == want
		})
	}
}

// bird runs one in a namespace until the test ends.
func (w *world) bird(ns, config string) {
	w.t.Helper()
	dir := w.t.TempDir()
	path, log := filepath.Join(dir, "bird.conf"), filepath.Join(dir, "log")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	out, err := os.Create(log)
	if err != nil {
		w.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command("ip", "netns", "exec", w.Name(ns), "bird", "-f", "-c", path, "-s", filepath.Join(dir, "ctl"))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() //nolint:errcheck // killed
		if said, err := os.ReadFile(log); err == nil && w.t.Failed() {
			w.t.Logf("bird in %s: %s", ns, said)
		}
	})
}
