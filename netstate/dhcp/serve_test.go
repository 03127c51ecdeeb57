package dhcp_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/dhcp"
	"godwit/netstate/internal/nettest"
)

const (
	guestMAC = "52:54:00:00:01:0b"
	// script is what udhcpc calls: it sets what it was given.
	script = `#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr replace "$ip/$mask" dev "$interface"
ip link set "$interface" mtu "$mtu"
ip route replace default via "$router"
echo "$1 $serverid $lease" >>"$HEARD"
`
)

// TestClient: a real client at a port of a bridge gets the grant, and keeps it by asking
// the server itself; one with another MAC and one elsewhere on the bridge get nothing.
func TestClient(t *testing.T) {
	need.Program(t, "busybox")
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := nettest.New(t, "h", "g", "r")
	n.IP("h", "link add br0 type bridge\nlink set br0 up")
	n.Wire("h", "t1a", "g", "eth0")
	n.Wire("h", "lan0", "r", "eth0")
	n.IP("h", "link set t1a master br0\nlink set lan0 master br0")
	n.IP("g", "link set eth0 address "+guestMAC)
	grant := dhcp.Grant{
		MAC: hardware(guestMAC), Addr: netip.MustParsePrefix("10.2.1.10/24"), Gateway: netip.MustParseAddr("10.2.1.1"),
		Server: netip.MustParseAddr("100.65.0.11"), MTU: 1400, Time: time.Hour, Renew: time.Minute,
	}
	words := make(chan dhcp.Word, 100)
	var server *dhcp.Server
	n.Do("h", func() (err error) {
		server, err = dhcp.Serve("t1a", grant, func(w dhcp.Word) { words <- w })
		return err
	})
	closed := false
	defer func() {
		if !closed {
			server.Close()
		}
	}()
	if heard, err := client(t, n, "g", 20); err != nil || heard != "bound 100.65.0.11 3600\n" {
		t.Fatalf("the client heard %q: %v", heard, err)
	}
	if got := n.Run("g", "ip", "-o", "addr", "show", "dev", "eth0"); !strings.Contains(got, "10.2.1.10/24") {
		t.Errorf("the guest has %s", got)
	}
	if got := n.Run("g", "ip", "-o", "link", "show", "dev", "eth0"); !strings.Contains(got, "mtu 1400 ") {
		t.Errorf("the guest has %s", got)
	}
	first, last := <-words, <-words
	for last == dhcp.Asks { // once more, of a server that was slow
		last = <-words
	}
	if first != dhcp.Asks || last != dhcp.Takes {
		t.Errorf("the server heard %d, %d", first, last)
	}
	if heard, err := client(t, n, "r", 1); err == nil {
		t.Errorf("somebody else on the bridge was served: %q", heard)
	}
	n.IP("g", "addr flush dev eth0\nlink set eth0 address 52:54:00:00:01:0c")
	if heard, err := client(t, n, "g", 1); err == nil {
		t.Errorf("another MAC was served: %q", heard)
	}
	n.IP("g", "link set eth0 address "+guestMAC)
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	closed = true
	if heard, err := client(t, n, "g", 1); err == nil {
		t.Errorf("a server that was closed answers: %q", heard)
	}
	if _, err := dhcp.Serve("t9z", grant, nil); err == nil {
		t.Error("served on a device that is not there")
	}
}

// TestFlood: a guest that asks without end is answered, so often and no more; what others on its LAN ask is not even heard.
func TestFlood(t *testing.T) {
	n := nettest.New(t, "h", "g")
	n.Wire("h", "t1a", "g", "eth0")
	grant := dhcp.Grant{
		MAC: hardware(guestMAC), Addr: netip.MustParsePrefix("10.2.1.10/24"), Server: netip.MustParseAddr("100.65.0.11"), Time: time.Hour, Renew: time.Minute,
	}
	var heard atomic.Int64
	var server *dhcp.Server
	n.Do("h", func() (err error) {
		server, err = dhcp.Serve("t1a", grant, func(dhcp.Word) { heard.Add(1) })
		return err
	})
	defer server.Close()
	question, err := dhcpv4.NewDiscovery(grant.MAC)
	if err != nil {
		t.Fatal(err)
	}
	ip := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, 0, 0, 0, 0, 255, 255, 255, 255)
	packet := append(append(ip, 0, 68, 0, 67, 0, 0, 0, 0), question.ToBytes()...)
	n.Do("g", func() error {
		ifi, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		flood := func(from net.HardwareAddr) (sent int) {
			frame := append(append(append([]byte{255, 255, 255, 255, 255, 255}, from...), 8, 0), packet...)
			for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; sent++ {
				if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
					t.Fatal(err)
				}
			}
			return sent
		}
		flood(hardware("52:54:00:00:01:0c"))
		if n := heard.Load(); n != 0 {
			t.Errorf("%d messages of another were heard", n)
		}
		begun := time.Now()
		sent := flood(grant.MAC)
		nettest.Eventually(t, "one is heard", 5*time.Second, func() bool { return heard.Load() > 0 })
		if n, took := heard.Load(), time.Since(begun); n > took.Milliseconds()/5+2 {
			t.Errorf("%d of %d messages were looked at in %v", n, sent, took)
		}
		return nil
	})
}

// client asks up to so many times in a namespace, for a second each, and returns what its script heard.
func client(t *testing.T, n *nettest.Net, ns string, times int) (string, error) {
	t.Helper()
	dir := t.TempDir()
	path, heard := filepath.Join(dir, "script"), filepath.Join(dir, "heard")
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := n.Try(ns, "env", "HEARD="+heard, "busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", strconv.Itoa(times), "-T", "1", "-O", "mtu", "-s", path)
	t.Log(out)
	said, _ := os.ReadFile(heard)
	return string(said), err
}

func hardware(s string) net.HardwareAddr {
	mac, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return mac
}
