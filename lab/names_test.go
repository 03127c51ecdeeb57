package lab

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/lab/scenario"
)

// Whatever the scenario's reader takes, the network takes: names and bounds are the same
// in both, so that a file never fails without its line.
func TestWhatIsReadCanBeBuilt(t *testing.T) {
	long := strings.Repeat("Long_name-", 4)
	for name, text := range map[string]string{
		"names": fmt.Sprintf(`
name: A line of text, whatever is in it
sites:
  - {name: SanJose, guest_net: {v4: 10.1.0.0/16}, uplinks: [{name: Public_1}]}
  - {name: %[1]s, hosts: 16, guest_net: {v4: 10.2.1.0/28, v6: "fd00:1::/120"}, uplinks: [{name: a}, {name: b-}]}
clients: [{name: %[1]s}, {name: Phone_2-, at: SanJose}]
guests: [{name: %[1]s, site: SanJose}]
`, long),
		"link": `
name: x
sites:
  - {name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p, rate: 100gbit, delay: 1m, jitter: 1m, loss: 100%, mtu: 9000, queue: 1GiB}, {name: q, rate: 8kbit, mtu: 1280, queue: 1}]}
`,
		"clients": "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nclients:\n" + manyClients(60),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := scenario.Parse(name, []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			w := &world{id: "beef", scenario: s}
			if err := w.spec().Check(); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := scenario.Parse("f", []byte("name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nclients:\n"+manyClients(61))); err == nil {
		t.Error("more clients than the network has room for were read")
	}
}

func manyClients(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  - {name: c%d, uplinks: 4, add_addr_accepted: 0}\n", i)
	}
	return b.String()
}

// Every name that a host may have serves as its certificate's, in its configuration and
// in the paths of its sockets.
func TestNamesOfHosts(t *testing.T) {
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("Long_name-", 4)
	for _, name := range []string{"SanJose", "San_Jose-", long + "-16", "007", "1e3", "null", "true", "On"} {
		if err := ca.Issue(name, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := pair.Leaf.VerifyHostname(name); err != nil || !slices.Equal(pair.Leaf.DNSNames, []string{name}) {
			t.Errorf("%s: its certificate is of %q: %v", name, pair.Leaf.DNSNames, err)
		}
		data, err := yaml.Marshal(config.Config{Host: name, Site: name, Uplinks: []config.Uplink{{Name: name}}})
		if err != nil {
			t.Fatal(err)
		}
		var back config.Config
		if err := yaml.Unmarshal(data, &back); err != nil || back.Host != name || back.Site != name || back.Uplinks[0].Name != name {
			t.Errorf("%s came back from YAML as %q, %q: %v", name, back.Host, back.Site, err)
		}
	}
	s := &scenario.Scenario{Sites: []scenario.Site{{Name: "a", Hosts: 16}, {Name: long, Hosts: 16}}}
	w := &world{dir: "/tmp/godwit-lab-beef", scenario: s} // a longer TMPDIR has less room: its agents say so
	socket := filepath.Join(w.hostDir(long+"-16"), "run", "guests", strings.Repeat("g", 40)+"-99", "disks-out.sock")
	if len(socket) > 107 {
		t.Errorf("a socket's path has %d bytes: %s", len(socket), socket)
	}
}

// TestMACsOfGuests: of as many guests as a file may have, each has addresses of its own.
func TestMACsOfGuests(t *testing.T) {
	seen := map[string]bool{}
	w := &world{}
	for i := range 4096 {
		for _, n := range w.describe(i, scenario.Guest{Name: "g", Image: "tiny"}).NICs {
			if mac, err := net.ParseMAC(n.MAC); err != nil || mac[0]&1 != 0 || seen[mac.String()] {
				t.Fatalf("guest %d: %s is no address of its own: %v", i, n.MAC, err)
			}
			seen[n.MAC] = true
		}
	}
}

// A disk's file tells its guest, however that is called.
func TestGuestOfDisk(t *testing.T) {
	for file, want := range map[string]string{"web-1-disk0.raw": "web", "big-disk-1-12-disk3.raw": "big-disk-1", "a-disk0-2-disk0.raw": "a-disk0", "web-2-disk0.m-0a1b2c3d.raw": "web", "x": ""} {
		if got := guestOfDisk(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
