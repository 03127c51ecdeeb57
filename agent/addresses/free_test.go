package addresses

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestAskedForInAnotherFamily: an address that was asked for, and that this site has no use for, is refused, and not
// another one given.
func TestAskedForInAnotherFamily(t *testing.T) {
	b := ofRome(nil)
	ask := func(want string) error {
		_, err := b.Free(t.Context(), netip.MustParseAddr(want), "web", nil)
		return err
	}
	refused(t, "of another subnet", ask("10.3.1.10"), "next address 10.3.1.10: not in the guests' subnet 10.2.1.0/24 of site rome")
	refused(t, "IPv6 at a site of IPv4", ask("fd00:2:1::20"), "next address fd00:2:1::20: site rome has no guests' subnet of its family")
	b.config.Network.V6 = netip.MustParsePrefix("fd00:2:1::/64")
	refused(t, "IPv6 at a site that has no router for it", ask("fd00:2:1::20"), "next address fd00:2:1::20: site rome has no router for it; name network.gateway6")
	b.config.Network.Bridge, b.config.Network.Gateway6 = "lo", netip.MustParseAddr("::1") // its own, also where nobody is root
	refused(t, "IPv6 at a site whose host is its router", ask("fd00:2:1::20"), "next address fd00:2:1::20: site rome has host rome itself for its router")
	b.config.Network.V4, b.config.Network.V6 = netip.Prefix{}, netip.MustParsePrefix("fd00:2:1::/64")
	refused(t, "IPv4 at a site of IPv6", ask("10.2.1.10"), "next address 10.2.1.10: site rome has no guests' subnet of its family")
}

func TestHostPart(t *testing.T) {
	for _, c := range []struct {
		subnet string
		n      uint32
		want   string
	}{
		{"10.1.1.0/24", 0, "10.1.1.0"},
		{"10.1.1.0/24", 10, "10.1.1.10"},
		{"10.1.1.77/24", 10, "10.1.1.10"}, // whatever host part the prefix has
		{"10.1.0.0/16", 256, "10.1.1.0"},
		{"10.1.0.0/16", 511, "10.1.1.255"},
		{"10.1.1.128/25", 130, "10.1.2.2"}, // carried, and outside: the caller looks
		{"10.255.255.0/24", 256, "11.0.0.0"},
		{"fd00:1:1::/64", 10, "fd00:1:1::a"},
		{"fd00:1:1::/64", 1 << 16, "fd00:1:1::1:0"},
		{"fd00:1:1::/64", 1<<32 - 1, "fd00:1:1::ffff:ffff"},
	} {
		if got := hostPart(netip.MustParsePrefix(c.subnet), c.n); got.String() != c.want {
			t.Errorf("%s, %d: %s, want %s", c.subnet, c.n, got, c.want)
		}
	}
}

// TestNotForGuests: what a subnet's first and last address and its router's are not given away, also when
// they are asked for and nobody answers for them.
func TestNotForGuests(t *testing.T) {
	b := ofRome(nil)
	for _, c := range []struct{ subnet, gateway, want, word string }{
		{"10.2.1.0/28", "10.2.1.1", "10.2.1.0", "it is the network's own address of the guests' subnet 10.2.1.0/28 of site rome; name another with --address"},
		{"10.2.1.5/28", "10.2.1.1", "10.2.1.15", "it is the broadcast address"},
		{"10.2.1.0/28", "10.2.1.1", "10.2.1.1", "it is the router"},
		{"10.2.0.0/16", "10.2.0.1", "10.2.255.255", "it is the broadcast address"},
		{"fd00:2:1::/64", "fd00:2:1::1", "fd00:2:1::1", "it is the router"},
	} {
		_, err := b.FreeIn(t.Context(), config.Subnet{Prefix: netip.MustParsePrefix(c.subnet), Gateway: netip.MustParseAddr(c.gateway)}, Seeker{Guest: "web", Want: netip.MustParseAddr(c.want)})
		refused(t, c.want, err, c.word)
	}
	for _, c := range [][2]string{
		{"10.2.1.0/28", "10.2.1.14"}, {"10.2.0.0/16", "10.2.1.0"}, {"10.2.0.0/16", "10.2.1.255"}, {"10.2.1.0/31", "10.2.1.1"}, {"10.2.1.0/31", "10.2.1.0"},
		{"10.2.1.7/32", "10.2.1.7"}, {"fd00:2:1::/64", "fd00:2:1::ffff:ffff:ffff:ffff"},
	} {
		if what := NotForGuests(config.Subnet{Prefix: netip.MustParsePrefix(c[0])}, netip.MustParseAddr(c[1])); what != "" {
			t.Errorf("%s in %s: %s", c[1], c[0], what)
		}
	}
}

// TestLastAddressOfASubnet: addresses are given as far as the last but one.
func TestLastAddressOfASubnet(t *testing.T) {
	name := agenttest.Bridged(t)
	b := ofRome(nil)
	n := &b.config.Network
	n.V4, n.Gateway4, n.First = netip.MustParsePrefix("10.2.1.0/28"), netip.MustParseAddr("10.2.1.13"), 12
	for _, c := range []struct{ guest, want, word string }{{"web", "10.2.1.12", ""}, {"db", "10.2.1.14", ""}, {"mail", "invalid IP", "none is free in 10.2.1.0/28"}} {
		err := netns.Do(name, func() error {
			addr, err := b.FreeIn(t.Context(), n.Subnets()[0], Seeker{Guest: c.guest})
			if addr.String() != c.want {
				t.Errorf("%s: %s, want %s", c.guest, addr, c.want)
			}
			return err
		})
		refused(t, c.guest, err, c.word)
	}
}

// TestComesWithIt: a guest gets no address that it comes with, such as one of this site that nobody answers for
// while its home is off, not even asked for by name.
func TestComesWithIt(t *testing.T) {
	name := agenttest.Bridged(t)
	b := ofRome(nil)
	n := &b.config.Network
	n.Gateway4, n.First = netip.MustParseAddr("10.2.1.1"), 10
	held := []netip.Addr{netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("10.1.1.10")}
	err := netns.Do(name, func() error {
		next, err := b.FreeIn(t.Context(), n.Subnets()[0], Seeker{Guest: "web", ComesWith: held})
		if next != netip.MustParseAddr("10.2.1.11") {
			t.Errorf("%s", next)
		}
		return err
	})
	refused(t, "another", err, "")
	_, err = b.Free(t.Context(), netip.MustParseAddr("10.2.1.10"), "web", held)
	refused(t, "asked for", err, "guest web comes with it")
}

// TestMoreGuestsThanTries: a host with more guests than addresses are tried has one for the next guest.
func TestMoreGuestsThanTries(t *testing.T) {
	name := agenttest.Bridged(t)
	b := ofRome(nil)
	n := &b.config.Network
	n.V4, n.Gateway4, n.First = netip.MustParsePrefix("10.2.1.0/24"), netip.MustParseAddr("10.2.1.1"), 10
	addr := netip.MustParseAddr("10.2.1.10")
	for i := range tries {
		if err := b.Promise(addr, fmt.Sprint("guest", i)); err != nil {
			t.Fatal(err)
		}
		addr = addr.Next()
	}
	err := netns.Do(name, func() error {
		got, err := b.FreeIn(t.Context(), n.Subnets()[0], Seeker{Guest: "web"})
		if got != addr {
			t.Errorf("%s, want %s", got, addr)
		}
		return err
	})
	refused(t, "the next", err, "")
}

// TestInUse: an address that somebody on the LAN has is not given, whether it was asked for or not; nor one of which
// that cannot be found out. Neither stays promised.
func TestInUse(t *testing.T) {
	name := agenttest.Bridged(t)
	used, next := netip.MustParseAddr("10.2.1.10"), netip.MustParseAddr("10.2.1.11")
	if out, err := exec.CommandContext(t.Context(), "ip", "-n", name, "addr", "add", used.String()+"/24", "dev", "br0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := ofRome(nil)
	b.config.Network.First = 10
	err := netns.Do(name, func() error {
		subnet := b.config.Network.Subnets()[0]
		if got, err := b.FreeIn(t.Context(), subnet, Seeker{Guest: "web"}); err != nil || got != next {
			t.Errorf("%s, %v", got, err)
		}
		_, err := b.FreeIn(t.Context(), subnet, Seeker{Guest: "web", Want: used})
		return err
	})
	refused(t, "asked for", err, "next address 10.2.1.10: in use on site rome by ")
	refused(t, "it is promised to nobody", b.Promise(used, "db"), "")
	refused(t, "what was given is", b.Promise(next, "db"), "guest web of this host has it")
	b.config.Network.Bridge = "none0"
	other := netip.MustParseAddr("10.2.1.20")
	if got, err := b.Free(t.Context(), other, "web", nil); err == nil {
		t.Errorf("not asked for on a LAN: %+v", got)
	}
	refused(t, "it is promised to nobody", b.Promise(other, "db"), "")
}

// TestNobodyCanBeAsked: where the LAN cannot be asked who has an address it is not told that none is free.
func TestNobodyCanBeAsked(t *testing.T) {
	need.Root(t)
	n := config.Network{Bridge: "br-none", V4: netip.MustParsePrefix("10.2.1.0/24"), Gateway4: netip.MustParseAddr("10.2.1.1"), First: 20}
	b := New(&config.Config{Host: "rome", Site: "rome", Network: n}, func() map[netip.Addr]string { return nil })
	_, err := b.FreeIn(t.Context(), n.Subnets()[0], Seeker{Guest: "web"})
	if err == nil || !strings.Contains(err.Error(), "probe address 10.2.1.20") || strings.Contains(err.Error(), "free") {
		t.Errorf("%v, want that nobody can be asked", err)
	}
	if err := b.Promise(netip.MustParseAddr("10.2.1.20"), "db"); err != nil {
		t.Errorf("it stays promised: %v", err)
	}
}
