package netstate

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"godwit/netstate/internal/nettest"
)

// meeting are two addresses of IPv4 whose visits have one routing table.
func meeting(t *testing.T) (one, other netip.Addr) {
	t.Helper()
	of := map[int]netip.Addr{}
	for n := uint32(10 << 24); n < 11<<24; n += 997 { // those of one subnet do not meet
		a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
		table := tableOf(a, PriorityVisiting)
		if of[table].IsValid() {
			return of[table], a
		}
		of[table] = a
	}
	t.Fatal("no two meet")
	return one, other
}

// TestTableOfAnother: of two visitors that would have one routing table, the second is refused, and the first has its way
// still; so is one whose table somebody else uses, until he does not. One that is here stays in any case.
func TestTableOfAnother(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", "link add br-guest type bridge\nlink set br-guest up\ntuntap add gw0 mode tun\nlink set gw0 up\ntuntap add gw1 mode tun\nlink set gw1 up")
	visits := func(guest string, addr netip.Addr, tunnel string) State {
		return State{Guest: guest, Bridge: "br-guest", LAN: "lan0", Visiting: []Visiting{
			{Addr: addr, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Taps: []string{"t1a"}, Tunnel: tunnel}}}
	}
	set := func(s State, want string) {
		t.Helper()
		n.Do("h", func() error {
			if err := Set(s); (err == nil) != (want == "") || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
				t.Errorf("set %s: %v, want %q", s.Guest, err, want)
			}
			return nil
		})
	}
	one, other := meeting(t)
	table := strconv.Itoa(tableOf(one, PriorityVisiting))
	set(visits("web", one, "gw0"), "")
	ways := func() string { return n.Run("h", "ip", "route", "show", "table", table) }
	before := ways()
	set(visits("db", other, "gw1"), "is that of "+one.String())
	set(visits("web", one, "gw1"), "") // by another tunnel
	set(visits("web", one, "gw0"), "")
	if ways() != before || !strings.Contains(before, "default dev gw0") {
		t.Errorf("the first visitor's way is %q, was %q", ways(), before)
	}
	n.Do("h", func() error { return Clear("web") })
	for _, c := range []struct{ add, del string }{
		{"route add 192.0.2.0/24 dev br-guest table " + table, "route del 192.0.2.0/24 dev br-guest table " + table},
		{"rule add from 192.0.2.7 lookup " + table, "rule del from 192.0.2.7 lookup " + table},
	} {
		n.IP("h", c.add)
		set(visits("db", other, "gw1"), "table "+table+" has others'")
		n.IP("h", c.del)
		set(visits("db", other, "gw1"), "")
		n.IP("h", c.add)
		set(visits("db", other, "gw1"), "")
		n.IP("h", c.del)
		n.Do("h", func() error { return Clear("db") })
	}
	n.Do("h", func() error {
		left, err := netlink.RuleList(netlink.FAMILY_V4)
		if len(left) != 3 {
			t.Errorf("rules that are left: %v", left)
		}
		return err
	})
}
