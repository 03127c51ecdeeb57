package address

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// sh runs lines, each of which must succeed.
func sh(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if out, err := exec.Command("/bin/sh", "-ec", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", line, err, out)
		}
	}
}

// moved has a guest that was at home on own0 move to own1, and keep its addresses of before for others.
func moved(t *testing.T, b *Book) (home, next guest.Configure) {
	t.Helper()
	nics := twoNICs(t)
	sh(t, "ip link set own0 up", "ip addr add 10.8.0.10/24 dev own0", "ip addr add fd08:0::10/64 dev own0 nodad")
	home, next = nics[0], nics[1]
	if _, err := b.Configure(next); err != nil {
		t.Fatal(err)
	}
	if err := b.Retire(guest.Retire{Addrs: bare(home), MAC: home.MAC, NewMAC: next.MAC, Keep: true, GatewayV4: home.GatewayV4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Drop(slices.Concat(bare(home), bare(next))); err != nil {
			t.Error(err)
		}
	})
	return home, next
}

func bare(p guest.Configure) (addrs []netip.Addr) {
	for _, prefix := range p.Addrs {
		addrs = append(addrs, prefix.Addr())
	}
	return addrs
}

// network is what the kernel says of the NICs' addresses and routes, and of all rules.
func network(t *testing.T) (state []string) {
	t.Helper()
	for _, line := range []string{"-o addr", "rule", "-6 rule", "route show table all", "-6 route show table all"} {
		out, err := exec.Command("ip", strings.Fields(line)...).Output()
		if err != nil {
			t.Fatalf("ip %s: %v", line, err)
		}
		for one := range strings.Lines(string(out)) {
			if !strings.Contains(one, "fe80:") && !strings.Contains(one, "ff00:") && !strings.Contains(one, " lo") {
				state = append(state, strings.Join(strings.Fields(one), " "))
			}
		}
	}
	slices.Sort(state)
	return state
}

// wantMended is that mend says so much, and makes the state of before.
func wantMended(t *testing.T, b *Book, what string, before []string, words ...string) {
	t.Helper()
	mended, err := b.mend()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, word := range words {
		if !strings.Contains(strings.Join(mended, ", "), word) {
			t.Errorf("%s: mended %q, of which %q is none", what, mended, word)
		}
	}
	if len(words) == 0 && len(mended) > 0 {
		t.Errorf("%s: mended %q", what, mended)
	}
	if now := network(t); !slices.Equal(now, before) {
		t.Errorf("%s: it is\n%s\nwant\n%s", what, strings.Join(now, "\n"), strings.Join(before, "\n"))
	}
	if again, err := b.mend(); err != nil || len(again) > 0 {
		t.Errorf("%s: mended again: %q, %v", what, again, err)
	}
}

// TestMend: what another program of the guest takes away of what a handover gave is put back, and what it gives a NIC
// that was taken from that is taken again.
func TestMend(t *testing.T) {
	var b Book
	moved(t, &b)
	before := network(t)
	wantMended(t, &b, "nothing", before)
	for _, c := range []struct{ what, lines, words string }{
		{"rules", "ip rule del from 10.8.0.10;ip rule del from 10.8.1.10", "packets from 10.8.0.10,packets from 10.8.1.10"},
		{"rules of IPv6", "ip -6 rule del from fd08::10;ip -6 rule del from fd08:1::10", "packets from fd08::10,packets from fd08:1::10"},
		{"the next address", "ip addr del 10.8.1.10/24 dev own1", "10.8.1.10/24 is on own1 again"},
		{"all addresses", "ip addr flush dev own1 scope global", "10.8.0.10/32 is on own1 again,fd08:1::10/64 is on own1 again"},
		{"routes", "ip route flush table 102;ip -6 route flush table 102;ip route flush table 1102", "packets from 10.8.1.10"},
		{"the way to the subnet", "ip route del 10.8.1.0/24 table 102", "packets from 10.8.1.10"},
		{"the default route", "ip route del default", "everything goes by 10.8.1.1 of own1"},
		{"that the NIC was up", "ip link set own1 down;ip link set own1 up", "packets from fd08::10,fd08:1::10/64 is on own1 again,everything goes by 10.8.1.1"},
		{"what the old NIC lingers by", "ip addr flush dev own0", "own0 sends for 10.8.0.10"},
		{"that for what its configuration has", "ip addr flush dev own0;ip addr add 10.8.0.10/24 dev own0", "10.8.0.10/24 is on own0 no more,own0 sends for 10.8.0.10"},
		{"what its configuration has", "ip addr add 10.8.0.10/24 dev own0;ip addr add fd08:0::10/64 dev own0 nodad;ip route append default via 10.8.0.1 dev own0;ip -6 route append default via fd08:0::1 dev own0",
			"10.8.0.10/24 is on own0 no more,fd08::10/64 is on own0 no more"},
		{"another router of the old NIC", "ip route append default via 192.0.2.1 dev own0 onlink;ip -6 route append default via fe80::1 dev own0", "everything goes by 10.8.1.1,everything goes by fd08:1::1"},
	} {
		sh(t, c.lines)
		wantMended(t, &b, c.what, before, strings.Split(c.words, ",")...)
	}
}

// TestMendLeaves: what a person does with the guest's NICs stays.
func TestMendLeaves(t *testing.T) {
	var b Book
	_, next := moved(t, &b)
	sh(t, "ip link add third type veth peer name fourth", "ip link set third up", "ip link set fourth up", "ip link add over type bridge", "ip link set over up")
	t.Cleanup(func() { sh(t, "ip link del third", "ip link del over") })
	for _, c := range []struct{ what, lines, undo string }{
		{"addresses and rules of its own", "ip addr add 192.0.2.7/24 dev own1;ip addr add 192.0.2.8/24 dev own0;ip rule add from 192.0.2.7 table 77 priority 9000",
			"ip addr del 192.0.2.7/24 dev own1;ip addr del 192.0.2.8/24 dev own0;ip rule del priority 9000"},
		{"an address on another link", "ip addr del 10.8.1.10/24 dev own1;ip addr add 10.8.1.10/24 dev over", "ip addr del 10.8.1.10/24 dev over"},
		{"a default route of a device of another kind", "ip route replace default via 192.0.2.1 dev third onlink", ""},
		{"another router", "ip route replace default via 10.8.1.2 dev own1 onlink", ""},
		{"no IPv6", "echo 1 >/proc/sys/net/ipv6/conf/own1/disable_ipv6", "echo 0 >/proc/sys/net/ipv6/conf/own1/disable_ipv6"},
		{"a NIC that is down", "ip link set own1 down", "ip link set own1 up"},
		{"a part of a bridge", "ip link set own1 master over;ip addr flush dev own1", "ip link set own1 nomaster"},
	} {
		sh(t, c.lines)
		wantMended(t, &b, c.what, network(t))
		if c.undo != "" {
			sh(t, c.undo)
		}
		if _, err := b.mend(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if _, err := b.Configure(next); err != nil {
			t.Fatal(err)
		}
		if err := b.MakeMain(next.MAC); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMendWhileCopied: a NIC that is brought up for the next move gets what the guest's configuration has, and is
// without it again: by the next address alone where that is the same, and down where the move is called off.
func TestMendWhileCopied(t *testing.T) {
	var b Book
	home, _, third := leftHome(t, &b)
	home.Table = third.Table
	for what, to := range map[string]guest.Configure{"to its home": home, "elsewhere": third} {
		if err := b.Ready(to); err != nil {
			t.Fatal(err)
		}
		before := network(t)
		sh(t, "ip addr add 10.8.0.10/24 dev own0", "ip addr add fd08:0::10/64 dev own0 nodad", "ip route append default via 10.8.0.1 dev own0")
		wantMended(t, &b, what, before, "10.8.0.10/24 is on own0 no more", "fd08::10/64 is on own0 no more")
		if link, err := netlink.LinkByName("own0"); err != nil || !stands(b.ready[home.MAC], link) {
			t.Errorf("%s: it is not ready any more", what)
		}
		sh(t, "ip addr add 10.8.0.10/24 dev own0")
		if err := b.Ready(guest.Configure{MAC: home.MAC}); err != nil {
			t.Fatal(err)
		}
		wantOn(t, what+", called off", "own0")
		if up, _ := onNIC(t, "own0"); up {
			t.Errorf("%s, called off: the NIC is up", what)
		}
	}
}

// leftHome is moved of a guest whose addresses of before nobody uses any more, and where own0 may go from there.
func leftHome(t *testing.T, b *Book) (home, next, third guest.Configure) {
	t.Helper()
	home, next = moved(t, b)
	if err := b.Drop(bare(home)); err != nil {
		t.Fatal(err)
	}
	third = home
	third.Table, third.GatewayV4, third.GatewayV6 = 103, netip.MustParseAddr("10.8.2.1"), netip.MustParseAddr("fd08:2::1")
	third.Addrs = []netip.Prefix{netip.MustParsePrefix("10.8.2.10/24"), netip.MustParsePrefix("fd08:2::10/64")}
	return home, next, third
}

// TestMendAsTheNICsChange: while both NICs have an address, as what is on its way to the one that leaves it comes yet,
// it is left as it is.
func TestMendAsTheNICsChange(t *testing.T) {
	var b Book
	_, next, third := leftHome(t, &b)
	if _, err := b.Configure(third); err != nil {
		t.Fatal(err)
	}
	if err := b.Retire(guest.Retire{Addrs: bare(next), MAC: next.MAC, NewMAC: third.MAC, Keep: true, Stay: true}); err != nil {
		t.Fatal(err)
	}
	wantMended(t, &b, "both have it", network(t))
	if err := b.Drop(bare(third)); err != nil {
		t.Fatal(err)
	}
}

// TestMendByTheFirstNIC: what the guest's configuration gives the NIC that is in use at a third site is taken from it,
// and what that took away is put back.
func TestMendByTheFirstNIC(t *testing.T) {
	var b Book
	home, next, third := leftHome(t, &b)
	if _, err := b.Configure(third); err != nil {
		t.Fatal(err)
	}
	if err := b.Retire(guest.Retire{Addrs: bare(next), MAC: next.MAC, NewMAC: home.MAC}); err != nil {
		t.Fatal(err)
	}
	before := network(t)
	sh(t, "ip addr add 10.8.0.10/24 dev own0", "ip addr add fd08:0::10/64 dev own0 nodad", "ip route prepend default via 10.8.0.1 dev own0", "ip -6 route append default via fd08:0::1 dev own0")
	wantMended(t, &b, "at a third site", before, "10.8.0.10/24 is on own0 no more", "fd08::10/64 is on own0 no more")
	sh(t, "ip addr flush dev own0 scope global", "ip addr add 10.8.0.10/24 dev own0", "ip addr add fd08:0::10/64 dev own0 nodad",
		"ip route add default via 10.8.0.1 dev own0", "ip -6 route replace default via fd08:0::1 dev own0", "ip rule del from 10.8.2.10", "ip -6 rule del from fd08:2::10")
	wantMended(t, &b, "at a third site, as it is configured anew", before, "10.8.0.10/24 is on own0 no more", "10.8.2.10/24 is on own0 again", "everything goes by 10.8.2.1")
	if _, err := b.Configure(home); err != nil {
		t.Fatal(err)
	}
	wantMended(t, &b, "at home again", network(t))
	if err := b.Drop(slices.Concat(bare(third), bare(home))); err != nil {
		t.Fatal(err)
	}
}

// TestMendKeepsTheWay: where the NIC in use is in the subnet of an address that is taken from it again, its own way out
// is never gone.
func TestMendKeepsTheWay(t *testing.T) {
	var b Book
	home, next, third := leftHome(t, &b)
	third.GatewayV4, third.GatewayV6 = home.GatewayV4, home.GatewayV6
	third.Addrs = []netip.Prefix{netip.MustParsePrefix("10.8.0.20/24"), netip.MustParsePrefix("fd08:0::20/64")}
	if _, err := b.Configure(third); err != nil {
		t.Fatal(err)
	}
	if err := b.Retire(guest.Retire{Addrs: bare(next), MAC: next.MAC, NewMAC: home.MAC}); err != nil {
		t.Fatal(err)
	}
	before := network(t)
	sh(t, "ip addr add 10.8.0.10/24 dev own0", "ip addr add fd08:0::10/64 dev own0 nodad", "ip route append default via 10.8.0.2 dev own0 metric 7")
	mended, err := b.mend()
	if want := []string{"10.8.0.10/24 is on own0 no more", "fd08::10/64 is on own0 no more"}; err != nil || !slices.Equal(mended, want) {
		t.Errorf("mended %q, %v, want %q alone", mended, err, want)
	}
	if now := network(t); !slices.Equal(now, before) {
		t.Errorf("it is\n%s\nwant\n%s", strings.Join(now, "\n"), strings.Join(before, "\n"))
	}
	if err := b.Drop(bare(third)); err != nil {
		t.Fatal(err)
	}
}

// TestMendNotWhatIsDropped: what was to go, and went by half, is not put back, and goes when that is asked again.
func TestMendNotWhatIsDropped(t *testing.T) {
	var b Book
	home, _ := moved(t, &b)
	sh(t, "ip addr add 10.8.1.11/24 dev own1") // with more than one, a setting is written first, by the NIC's name
	endpoints := listEndpoints
	listEndpoints = func() ([]mptcp.Endpoint, error) {
		sh(t, "ip link set own1 down", "ip link set own1 name renamed", "ip link set renamed up")
		return endpoints()
	}
	err := b.Drop(bare(home))
	listEndpoints = endpoints
	sh(t, "ip link set renamed down", "ip link set renamed name own1", "ip link set own1 up")
	if err == nil {
		t.Fatal("it went whole")
	}
	mended, err := b.mend()
	for _, addr := range bare(home) {
		if text := strings.Join(mended, ", "); err != nil || strings.Contains(text, "packets from "+addr.String()) || strings.Contains(text, addr.String()+"/32 is on own1 again") {
			t.Errorf("mended %q, %v", mended, err)
		}
	}
	if err := b.Drop(bare(home)); err != nil {
		t.Fatal(err)
	}
	wantOn(t, "dropped again", "own0")
	if up, _ := onNIC(t, "own0"); up {
		t.Error("dropped again: the NIC is up")
	}
}

// TestMendRemembersSoMuch: of addresses that were taken from NICs the last ones are known, each once.
func TestMendRemembersSoMuch(t *testing.T) {
	var b Book
	addr := netip.MustParseAddr("10.8.0.10")
	for range 3 * mostTaken {
		b.leftOff("52:54:00:00:01:0a", []netip.Addr{addr, netip.MustParseAddr("fd08::10")})
		addr = addr.Next()
	}
	if len(b.taken) != mostTaken || !slices.Contains(b.taken, taken{"52:54:00:00:01:0a", addr.Prev()}) {
		t.Errorf("%d are remembered: %v", len(b.taken), b.taken)
	}
}
