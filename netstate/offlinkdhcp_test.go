package netstate_test

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestAsksNoServerOfAnotherLink: what a visitor's DHCP client asks of all at its NIC from elsewhere reaches no
// server here; what it asks its own reaches that by the tunnel. Its NIC of this link asks as it likes.
func TestAsksNoServerOfAnotherLink(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.IP("ga", "link set dev eth0 down")
	w.Wire("hb", "t1b", "gb", "eth1")
	w.IP("hb", "link set t1b master br-guest")
	w.IP("gb", "addr add 10.2.1.5/24 dev eth1\naddr add fd00:2:1::5/64 dev eth1 nodad")
	w.Run("r", "nft", `add table inet asked
		add chain inet asked in { type filter hook prerouting priority -600; }
		add rule inet asked in iifname lanb ip saddr 10.1.1.5 udp dport 67 counter comment visitor4
		add rule inet asked in iifname lanb udp dport 547 ether saddr 52:54:00:00:01:0a counter comment visitor6
		add rule inet asked in iifname lanb ip saddr 10.2.1.5 udp dport 67 counter comment native4
		add rule inet asked in iifname lanb udp dport 547 ether saddr != 52:54:00:00:01:0a counter comment native6
		add rule inet asked in iifname lana ip saddr 10.1.1.5 udp dport 67 counter comment own4`)
	heard := func(what string) bool {
		for line := range strings.Lines(w.Run("r", "nft", "list", "table", "inet", "asked")) {
			if strings.Contains(line, `"`+what+`"`) {
				return !strings.Contains(line, "packets 0 ")
			}
		}
		t.Fatalf("no rule %s", what)
		return false
	}
	s := abroad()
	s.OffLink = []netstate.OffLink{{Tap: "t1a"}}
	w.set("hb", s)
	w.set("ha", home(true))
	for dev, from := range map[string]string{"eth0": "10.1.1.5", "eth1": "10.2.1.5"} {
		w.asks("gb", dev, "udp4", from+":68", "255.255.255.255:67")
		w.asks("gb", dev, "udp6", "[::]:546", "[ff02::1:2%"+dev+"]:547")
	}
	w.asks("gb", "eth0", "udp4", "10.1.1.5:68", gateway4.String()+":67")
	for _, what := range []string{"native4", "native6", "own4"} {
		nettest.Eventually(t, "heard: "+what, 3*time.Second, func() bool { return heard(what) })
	}
	for _, what := range []string{"visitor4", "visitor6"} {
		if heard(what) {
			t.Errorf("a server here hears %s", what)
		}
	}
	w.set("hb", abroad())
	w.asks("gb", "eth0", "udp4", "10.1.1.5:68", "255.255.255.255:67")
	nettest.Eventually(t, "a NIC of this link is heard", 3*time.Second, func() bool { return heard("visitor4") })
}

// TestRenewsWhatAServerGave: a visitor that is given an address by DHCP here goes on asking the server of its own link,
// which gave it the one that it had, and nobody else by that NIC; and none by the other one. What was given by an agent
// is renewed at the tap alone.
func TestRenewsWhatAServerGave(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.IP("ga", "link set dev eth0 down")
	w.Wire("hb", "t1b", "gb", "eth1")
	w.IP("hb", "link set t1b master br-guest")
	w.IP("gb", "addr add 10.2.1.5/24 dev eth1")
	w.Run("r", "nft", `add table inet asked
		add chain inet asked in { type filter hook prerouting priority -600; }
		add rule inet asked in ip saddr { 10.1.1.5, 10.2.1.5 } udp dport 67 counter
		add rule inet asked in ip saddr 10.1.1.5 udp dport 66 counter`)
	heard := func(port string, packets string) bool {
		return strings.Contains(w.Run("r", "nft", "list", "table", "inet", "asked"), "dport "+port+" counter packets "+packets+" ")
	}
	s := abroad()
	for i := range s.Visiting {
		s.Visiting[i].Taps = []string{"t1a", "t1b"}
	}
	w.set("ha", home(true))
	for _, c := range []struct {
		renews      bool
		heard, last string
	}{{false, "0", "1"}, {true, "1", "2"}} {
		for i := range s.Visiting {
			s.Visiting[i].Asks, s.Visiting[i].Renews = true, c.renews
		}
		w.set("hb", s)
		w.asks("gb", "eth1", "udp4", "10.2.1.5:68", "10.2.1.1:67")
		w.asks("gb", "eth1", "udp4", "10.2.1.5:68", "255.255.255.255:67")
		w.asks("gb", "eth0", "udp4", "10.1.1.5:68", "255.255.255.255:67")
		w.asks("gb", "eth0", "udp4", "10.1.1.5:68", gateway4.String()+":67")
		w.asks("gb", "eth0", "udp4", "10.1.1.5:68", gateway4.String()+":66") // behind them
		nettest.Eventually(t, "the last is heard", 3*time.Second, func() bool { return heard("66", c.last) })
		if !heard("67", c.heard) {
			t.Errorf("renews %v: %s", c.renews, w.Run("r", "nft", "list", "table", "inet", "asked"))
		}
	}
}

// asks sends what a client of DHCP might by a device.
func (w *world) asks(ns, device, network, from, to string) {
	w.t.Helper()
	w.Do(ns, func() error {
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
				unix.BindToDevice(int(fd), device)
			})
		}}
		conn, err := config.ListenPacket(w.t.Context(), network, from)
		if err != nil {
			return err
		}
		defer conn.Close()
		addr, err := net.ResolveUDPAddr(network, to)
		if err != nil {
			return err
		}
		_, err = conn.WriteTo(make([]byte, 300), addr)
		return err
	})
}
