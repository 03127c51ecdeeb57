package uplinks

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/internal/need"
)

// warned fails the test by what is told.
func warned(t *testing.T) func(string, ...any) {
	return func(msg string, args ...any) { t.Error(append([]any{msg}, args...)...) }
}

// TestWireSum: what was sent before counts, on paths too that nothing takes now.
func TestWireSum(t *testing.T) {
	before := map[string]int64{"public-public": 1000, "private-public": 50}
	got := sum(before, map[string]int64{"public-public": 10, "other": 7}, map[string]int64{"public-public": 110, "other": 7}, 0.5)
	if want := map[string]int64{"public-public": 1050, "private-public": 50}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if before["public-public"] != 1000 {
		t.Error("what was sent before has changed")
	}
	if got := sum(nil, nil, nil, 1); got == nil || len(got) > 0 {
		t.Errorf("nothing was sent: %v, want none, and not that it is not known", got)
	}
}

// TestWireBytesByPath: what the meters count has the names that paths have elsewhere, as in metrics, also where
// uplinks' names would be taken for others.
func TestWireBytesByPath(t *testing.T) {
	need.Root(t)
	up := func(name, addr string) config.Uplink {
		return config.Uplink{Name: name, Address: netip.MustParseAddr(addr), Device: "lo", Carries: "both"}
	}
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{up("b-c", "127.0.1.1"), up("c", "127.0.1.2")}}
	c := &config.Config{Host: "paris", Uplinks: []config.Uplink{up("a", "127.0.0.1"), up("a-b", "127.0.0.2")}, Peers: []config.Neighbour{n}}
	meters := OpenMeters(c.Uplinks, warned(t))
	defer meters.Close()
	var tunnels []uint16
	want := map[string]int64{}
	for i, p := range c.Paths(n) {
		from := net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Local, 0))
		to, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.Remote, 0)))
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		at := to.LocalAddr().(*net.UDPAddr)
		conn, err := net.DialUDP("udp", from, at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		tunnels = append(tunnels, at.AddrPort().Port())
		if _, err := conn.Write(make([]byte, 100*(i+1))); err != nil {
			t.Fatal(err)
		}
		want[p.Name] = int64(28 + 100*(i+1))
	}
	if got := meters.Sent(c.Paths(n), tunnels).tunnels; len(want) != 4 || !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWireBytesBesideAnother: a migration whose memory has tunnels of its own is not told to have sent what another
// sends to the same host meanwhile.
func TestWireBytesBesideAnother(t *testing.T) {
	need.Root(t)
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.1.1")
	n := config.Neighbour{Host: "rome", Uplinks: []config.Uplink{{Name: "public", Address: there}}}
	c := &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "public", Address: here, Device: "lo"}}, Peers: []config.Neighbour{n}}
	meters := OpenMeters(c.Uplinks, warned(t))
	defer meters.Close()
	tunnels, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer tunnels.Close()
	lanes, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer lanes.Close()
	end := tunnels.LocalAddr().(*net.UDPAddr)
	sent := func() *Sent { return meters.Sent(c.Paths(n), []uint16{end.AddrPort().Port()}) }
	var shares WireShares
	var wire Wire
	wire.Begin(nil, sent(), shares.Join("rome"))
	defer wire.Leave()
	another := shares.Join("rome")
	defer another.Leave()
	another.Follow(func() int64 { return 5000 })
	send := func(conn net.Conn, err error, bytes int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	own, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), end)
	send(own, err, 100)
	others, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), lanes.Addr().(*net.TCPAddr))
	send(others, err, 5000)
	if got, want := wire.Since(sent), map[string]int64{"public-public": 128}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestOneMeterADevice: uplinks of one device share its meter, and none is left when the agent ends.
func TestOneMeterADevice(t *testing.T) {
	need.Root(t)
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	uplinks := []config.Uplink{{Name: "four", Device: "lo"}, {Name: "six", Device: "lo"}}
	before := open()
	meters := OpenMeters(uplinks, warned(t))
	if len(meters.byDevice) != 1 {
		t.Errorf("%d meters", len(meters.byDevice))
	}
	meters.Close()
	if after := open(); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// TestMeterThatFails: an uplink whose device cannot be counted is told, at the start and later, and the others count
// on. Of UDP guests' packets are none of the migration's; what else goes to the other host is.
func TestMeterThatFails(t *testing.T) {
	need.Root(t)
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.1.1")
	var told []string
	tell := func(msg string, args ...any) { told = append(told, fmt.Sprint(append([]any{msg}, args[:2]...)...)) }
	meters := OpenMeters([]config.Uplink{{Name: "gone", Address: there, Device: "no-such-device"}, {Name: "public", Address: here, Device: "lo"}}, tell)
	defer meters.Close()
	paths := []peer.Path{{Name: "public-public", Local: here, Remote: there}}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(there, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	before := meters.Sent(paths, nil)
	lane, err := net.DialTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), listener.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer lane.Close()
	guests, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(there, 4)))
	if err != nil {
		t.Fatal(err)
	}
	defer guests.Close()
	if _, err := guests.Write(make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	now := meters.Sent(paths, nil)
	if sent := now.rest["public-public"] - before.rest["public-public"]; sent < 40 || sent >= 5000 || len(now.tunnels) > 0 {
		t.Errorf("%d bytes, by tunnels %v", sent, now.tunnels)
	}
	if want := []string{"wire bytes are not counteduplinkgone"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
	meters.byDevice["lo"].meter.Close()
	if after := meters.Sent(paths, nil); len(after.rest) > 0 || len(told) != 3 || !strings.HasPrefix(told[1], "read meter") || !strings.HasPrefix(told[2], "wire bytes are counted again") {
		t.Errorf("a meter that is closed: %v, told %q", after, told)
	}
}

// TestWireBegun: a migration that does not count yet says so.
func TestWireBegun(t *testing.T) {
	var wire Wire
	if wire.Begun() {
		t.Error("it has not begun")
	}
	if wire.Begin(nil, (*Meters)(nil).Sent(nil, nil), nil); !wire.Begun() {
		t.Error("it has begun")
	}
}
