package netstate_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

func TestMain(m *testing.M) {
	child.Dispatch()
	os.Exit(m.Run())
}

var (
	guest4, guest6     = netip.MustParseAddr("10.1.1.5"), netip.MustParseAddr("fd00:1:1::5")
	gateway4, gateway6 = netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00:1:1::1")
	guestMAC           = mac("52:54:00:00:01:0a")
)

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

// A world is two sites behind one router r, which lets nobody send with another
// network's addresses: host ha with the guest's home, host hb elsewhere, client c.
// "Guests" are namespaces ga and gb with the same address and MAC; the veth into
// the bridge stands for the tap.
type world struct {
	*nettest.Net
	t    *testing.T
	kind string
	vlan string // how the guests' LAN is one of VLAN 20: "", byPort or byFilter
	lan  string // the bridges' port to it
}

func newWorld(t *testing.T, kind string, more ...string) *world {
	return newWorldOf(t, kind, "", more...)
}

func newWorldOf(t *testing.T, kind, vlan string, more ...string) *world {
	w := &world{nettest.New(t, append([]string{"c", "r", "ha", "hb", "ga", "gb"}, more...)...), t, kind, vlan, "lan0"}
	w.Sysctl("r", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/arp_ignore=1")
	w.Wire("c", "eth0", "r", "acc")
	w.IP("r", "addr add 198.18.0.1/24 dev acc\naddr add fd18::1/64 dev acc nodad")
	w.IP("c", "addr add 198.18.0.10/24 dev eth0\naddr add fd18::10/64 dev eth0 nodad\nroute add default via 198.18.0.1\nroute add default via fd18::1")
	w.site("ha", "ga", "upa", "lana", "100.64.0", "fd64:0", "10.1.1.1/24", "fd00:1:1::1/64")
	w.site("hb", "gb", "upb", "lanb", "100.65.0", "fd64:1", "10.2.1.1/24", "fd00:2:1::1/64")
	w.Run("r", "nft", `add table inet edge
		add chain inet edge in { type filter hook prerouting priority -500; }
		add rule inet edge in iifname != { lana, acc } ip saddr 10.1.1.0/24 drop
		add rule inet edge in iifname != { lana, acc } ip6 saddr fd00:1:1::/64 drop`)
	for _, g := range []string{"ga", "gb"} {
		w.guest(g)
	}
	w.remind()
	w.tunnel("gw0", "4789")
	return w
}

func (w *world) site(h, g, up, lan, net4, net6, gw4, gw6 string) {
	w.Wire("r", up, h, "up0")
	w.wireLAN(h, lan)
	w.IP("r", "addr add "+net4+".1/24 dev "+up+"\naddr add "+net6+"::1/64 dev "+up+" nodad\naddr add "+gw4+" dev "+lan+"\naddr add "+gw6+" dev "+lan+" nodad")
	// As unkind as hosts are: strict reverse path filter, no forwarding.
	w.Sysctl(h, "ipv4/ip_forward=0", "ipv4/conf/all/rp_filter=1", "ipv4/conf/default/rp_filter=1")
	w.bridge(h)
	w.Wire(h, "t1a", g, "eth0")
	w.Sysctl(h, "ipv6/conf/t1a/disable_ipv6=1") // as OpenTap does
	w.IP(h, "link set t1a master br-guest\naddr add "+net4+".11/24 dev up0\naddr add "+net6+"::11/64 dev up0 nodad\nroute add default via "+net4+".1\nroute add default via "+net6+"::1")
}

func (w *world) guest(g string) {
	w.IP(g, "link set eth0 address "+guestMAC.String()+"\naddr add 10.1.1.5/24 dev eth0\naddr add fd00:1:1::5/64 dev eth0 nodad\nroute add default via 10.1.1.1\nroute add default via fd00:1:1::1")
}

// tunnel joins the two hosts.
func (w *world) tunnel(name, port string) {
	w.tunnelBetween(name, 1500, "100.64.0.11:"+port, "100.65.0.11:"+port)
}

func (w *world) tunnelBetween(name string, mtu int, a, b string) {
	var keys [2]wgtypes.Key
	for i := range keys {
		keys[i], _ = wgtypes.GeneratePrivateKey()
	}
	at := [2]netip.AddrPort{netip.MustParseAddrPort(a), netip.MustParseAddrPort(b)}
	var tuns [2]*tunnel.Tunnel
	for i, h := range []string{"ha", "hb"} {
		dir, err := os.MkdirTemp("", "gw")
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { os.RemoveAll(dir) })
		w.Do(h, func() (err error) {
			tuns[i], err = tunnel.Up(w.t.Context(), tunnel.Config{Name: name, Kind: w.kind, MTU: mtu, Local: at[i], Remote: at[1-i],
				PrivateKey: keys[i], PeerKey: keys[1-i].PublicKey(), Dir: dir, Lease: time.Now().Add(20 * time.Minute)})
			return err
		})
		w.t.Cleanup(func() { netns.Do(w.Name(h), func() error { return tunnel.Down(context.Background(), dir, name) }) })
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.Do("ha", func() error { return tuns[0].Verify(ctx) })
}

// home and abroad are the states of the two hosts.
func home(active bool) netstate.State {
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Taps: []string{"t1a"}}
	for i, a := range [][2]netip.Addr{{guest4, gateway4}, {guest6, gateway6}} {
		subnet := netip.MustParsePrefix([]string{"10.1.1.0/24", "fd00:1:1::/64"}[i])
		s.Away = append(s.Away, netstate.Away{Addr: a[0], MAC: guestMAC, Tap: "t1a", Tunnel: "gw0", Gateway: a[1], Subnet: subnet, Active: active})
	}
	return s
}

func abroad() netstate.State {
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Taps: []string{"t1a"}}
	for _, a := range [][2]netip.Addr{{guest4, gateway4}, {guest6, gateway6}} {
		s.Visiting = append(s.Visiting, netstate.Visiting{Addr: a[0], MAC: guestMAC, Tap: "t1a", Taps: []string{"t1a"}, Gateway: a[1], Tunnel: "gw0"})
	}
	return s
}

// leaving is abroad where the guest goes to another host on the same link, at which its addresses are at home.
func leaving(active bool) netstate.State {
	s := abroad()
	for i := range s.Visiting {
		v := &s.Visiting[i]
		v.Leaves, v.Known, v.Active = "gw0", mac("52:54:00:00:01:0b"), active
	}
	return s
}

func (w *world) set(h string, s netstate.State) {
	w.t.Helper()
	s.LAN = w.lan
	w.Do(h, func() error { return netstate.Set(s) })
	w.stands(h, s, true)
}

// prepared is what host a has prepared for its guest, to be flipped.
func (w *world) prepared(active bool) (s netstate.State) {
	w.t.Helper()
	w.Do("ha", func() error {
		found, err := netstate.Found()
		s = found.States["web"]
		return err
	})
	for i := range s.Away {
		s.Away[i].Active = active
	}
	return s
}

// flip leads the guest's addresses from host a to where it is, or back.
func (w *world) flip(active bool) {
	w.t.Helper()
	s := w.prepared(active)
	w.Do("ha", func() error { return netstate.Set(s) })
}

// dump is all that Set may touch in a namespace, without what comes and goes by
// itself.
func (w *world) dump(h string) string {
	return w.Run(h, "sh", "-c", `nft list ruleset | sed -E 's,packets [0-9]+ bytes [0-9]+,,'
ip route show table all; ip -6 route show table all | sed 's/expires [0-9]*sec//'; ip rule; ip -6 rule
ip neigh show nud permanent; ip neigh show proxy; ip -6 neigh show proxy
bridge fdb show | grep -E 'permanent|static' | sort
ip -o -d link | sed -E 's/([a-z_]*_timer) +[0-9.]+//g; s/ state (UNKNOWN|UP) //'
cd /proc/sys/net; grep -sr . ipv4/conf ipv6/conf ipv4/neigh ipv6/neigh | grep -vE 'stable_secret|ra_defrtr' | sort`)
}

// dumps are of both hosts, when what the kernel does by itself to a new network is over.
func (w *world) dumps() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, h := range []string{"ha", "hb"} {
		nettest.Eventually(w.t, h+" is at rest", 5*time.Second, func() bool {
			was := all[h]
			all[h] = w.dump(h)
			return all[h] == was
		})
	}
	return all
}

// like waits until a host is as it was dumped: of what goes with a rule or a device the kernel takes
// some away a little later.
func (w *world) like(before, h, when string) {
	w.t.Helper()
	diff := ""
	for p := need.Patient(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		diff = cmp.Diff(strings.Split(before, "\n"), strings.Split(w.dump(h), "\n"))
		if diff == "" {
			return
		}
		if p.Over() {
			w.t.Errorf("%s %s: %s", h, when, diff)
			return
		}
	}
}

// cleared takes the guests' state from both hosts: nothing is left of it.
func (w *world) cleared(before map[string]string, guests ...string) {
	w.t.Helper()
	for _, h := range []string{"ha", "hb"} {
		for _, guest := range guests {
			w.Do(h, func() error { return netstate.Clear(guest) })
		}
		w.like(before[h], h, "after Clear")
	}
}

// An echoer answers each datagram from within a namespace and notes its number.
type echoer struct {
	mu   sync.Mutex
	seen map[uint32]int
}

func (w *world) echo(ns string) *echoer {
	e := &echoer{seen: map[uint32]int{}}
	for _, network := range []string{"udp4", "udp6"} {
		var conn net.PacketConn
		w.Do(ns, func() (err error) { conn, err = net.ListenPacket(network, ":7007"); return err })
		conn.(*net.UDPConn).SetReadBuffer(4 << 20)
		w.t.Cleanup(func() { conn.Close() })
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := conn.ReadFrom(b)
				if err != nil {
					return
				}
				e.mu.Lock()
				e.seen[binary.BigEndian.Uint32(b)]++
				e.mu.Unlock()
				conn.WriteTo(b[:n], from)
			}
		}()
	}
	return e
}

func (e *echoer) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

// dial opens a connected UDP socket in the client's namespace.
func (w *world) dial(addr netip.Addr) net.Conn { return w.dialFrom("c", addr) }

func (w *world) dialFrom(ns string, addr netip.Addr) net.Conn {
	var conn net.Conn
	w.Do(ns, func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(addr, 7007).String())
		return err
	})
	conn.(*net.UDPConn).SetReadBuffer(4 << 20)
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// answers says whether the guest answers the client within limit.
func (w *world) answers(addr netip.Addr, limit time.Duration) bool {
	return w.answersTo("c", addr, limit)
}

func (w *world) answersTo(ns string, addr netip.Addr, limit time.Duration) bool {
	_, ok := w.answersAfter(ns, addr, limit)
	return ok
}

// answersAfter says also after how long, by what the machine let it.
func (w *world) answersAfter(ns string, addr netip.Addr, limit time.Duration) (took time.Duration, ok bool) {
	conn := w.dialFrom(ns, addr)
	defer conn.Close()
	b := make([]byte, 2048)
	p := need.Patient(limit)
	for !p.Over() {
		conn.Write([]byte("\xff\xff\xff\xff" + strings.Repeat("x", 1400)))
		conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := conn.Read(b); err == nil {
			return p.Took(), true
		}
	}
	return p.Took(), false
}

// remind puts the neighbour entries of a guest that was just moved in place: the
// router knows its MAC, it knows the router's.
func (w *world) remind() {
	router := w.Run("r", "cat", "/sys/class/net/lana/address")
	for _, a := range []netip.Addr{guest4, guest6} {
		w.IP("r", "neigh replace "+a.String()+" dev lana nud reachable lladdr "+guestMAC.String())
	}
	w.IP("gb", "neigh replace 10.1.1.1 dev eth0 nud reachable lladdr "+router)
	w.IP("gb", "neigh replace fd00:1:1::1 dev eth0 nud reachable router lladdr "+router)
}
