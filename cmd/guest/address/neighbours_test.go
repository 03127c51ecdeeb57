package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"godwit/internal/lasting/lastingtest"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// TestNeighboursOfElsewhere: a NIC that lingered until its guest came home asks for its router anew, whose MAC it has
// from where it was; what was set by hand stays, and so does what it hears once it is configured.
func TestNeighboursOfElsewhere(t *testing.T) {
	for _, readied := range []bool{true, false} {
		t.Run(fmt.Sprintf("made ready %v", readied), func(t *testing.T) {
			var b Book
			home := cameHome(t, &b)
			link, err := netlink.LinkByName("own0")
			if err != nil {
				t.Fatal(err)
			}
			mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
			set := func(addr netip.Addr, state int) {
				t.Helper()
				if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: state, IP: addr.AsSlice(), HardwareAddr: mac}); err != nil {
					t.Fatal(err)
				}
			}
			want := func(what string, addr netip.Addr, known bool) {
				t.Helper()
				all, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
				if err != nil {
					t.Fatal(err)
				}
				if has := slices.ContainsFunc(all, func(n netlink.Neigh) bool { // one that is used is asked for before it goes
					return n.IP.Equal(addr.AsSlice()) && slices.Equal(n.HardwareAddr, mac) && n.State != netlink.NUD_FAILED
				}); has != known {
					t.Errorf("%s: %s is known: %v", what, addr, has)
				}
			}
			byHand := home.GatewayV4.Next()
			set(home.GatewayV4, netlink.NUD_STALE)
			set(home.GatewayV6, netlink.NUD_STALE)
			set(byHand, netlink.NUD_PERMANENT)
			if readied {
				if err := b.Ready(home); err != nil {
					t.Fatal(err)
				}
			}
			want("away", home.GatewayV4, true)
			for _, what := range []string{"at home", "asked again"} {
				if err := second(b.Configure(home)); err != nil {
					t.Fatal(err)
				}
				again := what == "asked again"
				want(what, home.GatewayV4, again)
				want(what, home.GatewayV6, again)
				want(what, byHand, true)
				set(home.GatewayV4, netlink.NUD_STALE)
				set(home.GatewayV6, netlink.NUD_STALE)
			}
		})
	}
}

// cameHome is a guest whose first NIC lingers since it was away, and the addresses that this is to have now.
func cameHome(t *testing.T, b *Book) (home guest.Configure) {
	t.Helper()
	nics := twoNICs(t)
	home, away := nics[0], nics[1]
	t.Cleanup(func() {
		for _, p := range slices.Concat(nics[0].Addrs, home.Addrs, away.Addrs) {
			if err := unlead(p.Addr()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, p := range nics {
		if err := second(b.Configure(p)); err != nil {
			t.Fatal(err)
		}
	}
	retire := guest.Retire{MAC: home.MAC, NewMAC: away.MAC, Keep: true, GatewayV4: home.GatewayV4}
	for _, p := range home.Addrs {
		retire.Addrs = append(retire.Addrs, p.Addr())
	}
	if err := b.Retire(retire); err != nil {
		t.Fatal(err)
	}
	home.Table, home.Addrs = 103, nil
	for _, p := range nics[0].Addrs {
		home.Addrs = append(home.Addrs, netip.PrefixFrom(p.Addr().Next(), p.Bits()))
	}
	return home
}

// TestAnnouncedWhenThereIsADescriptorAgain: a guest that had no descriptor left when it first told its LAN of an
// address does so when it has.
func TestAnnouncedWhenThereIsADescriptorAgain(t *testing.T) {
	twoNICs(t)
	link, err := netlink.LinkByName("own0")
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	usual := frames
	defer func() { frames = usual }()
	frames = newFrames()
	var none error
	if err := lastingtest.WithoutDescriptors(func() { _, none = frames() }); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(none, syscall.EMFILE) {
		t.Fatalf("no descriptor was left: %v", none)
	}
	sent := func() uint64 {
		t.Helper()
		now, err := netlink.LinkByName("own0")
		if err != nil {
			t.Fatal(err)
		}
		return now.Attrs().Statistics.TxPackets
	}
	were := sent()
	announce(link, []netip.Prefix{netip.MustParsePrefix("10.7.0.9/24")})
	if n := sent() - were; n < 2 {
		t.Errorf("%d frames were sent, of a question and an answer", n)
	}
}
