package migration

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestWrittenAddresses: what of a guest's addresses cannot be meant is refused in one line: they become routes, and
// arguments of commands.
func TestWrittenAddresses(t *testing.T) {
	prefix := netip.MustParsePrefix("10.1.1.20/24")
	zoned := func(zone string) netip.Addr { return netip.MustParseAddr("fe80::1").WithZone(zone) }
	for name, c := range map[string]struct {
		addr  Address
		words string
	}{
		"good":                   {Address{Prefix: prefix, Gateway: netip.MustParseAddr("10.1.1.1"), Public: netip.MustParseAddr("192.0.2.1")}, ""},
		"nothing else":           {Address{Prefix: prefix}, ""},
		"none":                   {Address{}, "an address that is none"},
		"of a device":            {Address{Prefix: prefix, Gateway: zoned("~2345678901234!")}, ""},
		"of a longer name":       {Address{Prefix: prefix, Gateway: zoned("1234567890123456")}, "zone is no device"},
		"of two words":           {Address{Prefix: prefix, Gateway: zoned("a b")}, "zone is no device"},
		"of what is not printed": {Address{Prefix: prefix, Gateway: zoned("a\x7f")}, "zone is no device"},
		"of two lines":           {Address{Prefix: prefix, Public: zoned("a\n")}, "zone is no device"},
		"of a path":              {Address{Prefix: prefix, Public: zoned("../a")}, "zone is no device"},
		"handed over":            {Address{Prefix: prefix, Handover: "m-00000001"}, ""},
		"handed over by nobody":  {Address{Prefix: prefix, Handover: "m-1\n"}, "which is no migration"},
	} {
		for _, all := range [][]Address{{c.addr}, {{Prefix: prefix}, c.addr}} {
			err := CheckAddresses(all)
			if (err == nil) != (c.words == "") || err != nil && (!strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s: %v, want %q", name, err, c.words)
			}
		}
	}
}

// TestAddressesOfAGuest: as its clients see one, and each once.
func TestAddressesOfAGuest(t *testing.T) {
	own, public, other := netip.MustParsePrefix("10.1.1.20/24"), netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix("10.1.1.21/24")
	if a, b := (Address{Prefix: own}).Seen(), (Address{Prefix: own, Public: public}).Seen(); a != own.Addr() || b != public {
		t.Errorf("seen as %s, and %s", a, b)
	}
	got := Bare([]Address{{Prefix: own}, {Prefix: other}, {Prefix: netip.PrefixFrom(own.Addr(), 32)}})
	if want := []netip.Addr{own.Addr(), other.Addr()}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestPlanSays: what takes which way, and who is who.
func TestPlanSays(t *testing.T) {
	for _, transfer := range Transfers {
		p := Plan{Transfer: transfer, From: "paris", To: "rome"}
		if own := transfer == "lanes" || transfer == "mptcp"; p.OwnPath() != own || p.Multipath() != (transfer == "mptcp") {
			t.Errorf("%s: our own path %v, by MPTCP %v", transfer, p.OwnPath(), p.Multipath())
		}
		if p.Direct() != (transfer == "qemu-mptcp") {
			t.Errorf("%s: without our forwarder: %v", transfer, p.Direct())
		}
		if p.Insecure = true; !p.Direct() {
			t.Errorf("%s: not encrypted, by our forwarder", transfer)
		}
	}
	for _, network := range Networks {
		if p := (Plan{Network: network}); p.KeepsAddress() != (network == "tunnel") {
			t.Errorf("%s: keeps its address: %v", network, p.KeepsAddress())
		}
	}
	p := Plan{From: "paris", To: "rome"}
	if p.RoleOf("rome") != AtDestination || p.RoleOf("paris") != AtSource {
		t.Error(p.RoleOf("rome"), p.RoleOf("paris"))
	}
	for id, well := range map[string]bool{"m-0123abcd": true, "m-0123abc": false, "m-0123abcde": false, "m-0123ABCD": false, "m-0123abcd\n": false, "x m-0123abcd": false} {
		if ValidID(id) != well {
			t.Errorf("%q: %v", id, !well)
		}
	}
}
