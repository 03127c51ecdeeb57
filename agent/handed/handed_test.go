package handed

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestAnnounceable: a guest that could announce only its own side of a NAT is refused.
func TestAnnounceable(t *testing.T) {
	behind := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Public: netip.MustParseAddr("203.0.113.10"), Endpoint: 3}
	open, drained := behind, behind
	open.Public, drained.Endpoint = netip.Addr{}, 0
	behind6 := migration.Address{Prefix: netip.MustParsePrefix("fd02::10/64"), Public: netip.MustParseAddr("2001:db8::10"), Endpoint: 4}
	for _, c := range []struct {
		name         string
		next         []migration.Address
		capabilities []string
		refused      string // for that address
	}{
		{"it can", []migration.Address{behind, behind6}, []string{guest.CapAnnounce}, ""},
		{"it cannot", []migration.Address{behind, behind6}, []string{"configure"}, "203.0.113.10"},
		{"no NAT", []migration.Address{open}, nil, ""},
		{"nothing announced", []migration.Address{drained}, nil, ""},
		{"a NAT of IPv6 alone", []migration.Address{open, behind6}, nil, "2001:db8::10"},
	} {
		err := Announceable(migration.Plan{Guest: "web", Next: c.next}, c.capabilities)
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), "announce "+c.refused+" instead") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestUnseen: what clients of the internet lose is known by the addresses of the guest alone, in each family.
func TestUnseen(t *testing.T) {
	of := func(list ...string) (out []migration.Address) { // an address, and what clients see in its place
		for _, s := range list {
			own, seen, _ := strings.Cut(s, " ")
			a := migration.Address{Prefix: netip.MustParsePrefix(own)}
			if seen != "" {
				a.Public = netip.MustParseAddr(seen)
			}
			out = append(out, a)
		}
		return out
	}
	const open, open6, inside, inside6, behind = "203.0.113.10/24", "2001:db8::10/64", "10.2.1.10/24", "fd02::10/64", "10.1.1.10/24 203.0.113.10"
	for name, c := range map[string]struct {
		held, next []migration.Address
		want       string
	}{
		"from the internet":     {of(open), of(inside), "10.2.1.10"},
		"to a carrier's NAT":    {of(open), of("100.64.1.10/24"), "100.64.1.10"},
		"from behind a NAT":     {of(behind), of(inside), "10.2.1.10"},
		"behind one that tells": {of(open), of("10.2.1.10/24 198.51.100.10"), ""},
		"to the internet":       {of(open), of("198.51.100.10/24"), ""},
		"within":                {of("10.1.1.10/24"), of(inside), ""},
		"IPv6":                  {of(open6), of(inside6), "fd02::10"},
		"one of both":           {of(open, open6), of(inside, "2001:db8:1::10/64"), "10.2.1.10"},
		"the other family":      {of("10.1.1.10/24", open6), of(inside), ""},
		"it has it already":     {of(open, inside), of(inside), ""},
		"none":                  {of(open), nil, ""},
	} {
		var got []string
		for _, a := range Unseen(migration.Plan{Held: c.held, Next: c.next}) {
			got = append(got, a.Prefix.Addr().String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLacksIPv6: a guest has it turned off where all of its NICs have, unlike one that comes from a site without.
func TestLacksIPv6(t *testing.T) {
	const mac = "52:54:00:00:01:0A"
	v4 := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	v6 := migration.Address{Prefix: netip.MustParsePrefix("fd02::10/64")}
	const spare = "52:54:00:00:01:0b"
	off := []guest.NIC{{MAC: strings.ToLower(mac), NoIPv6: true}, {MAC: spare, NoIPv6: true}}
	on := []guest.NIC{{MAC: strings.ToLower(mac), NoIPv6: true}, {MAC: spare}}
	for _, c := range []struct {
		name  string
		nics  []guest.NIC
		held  []migration.Address
		lacks bool
	}{
		{"turned off", off, []migration.Address{v4}, true},
		{"off for one, which had IPv4 alone at a site", on, []migration.Address{v4}, false},
		{"off for a VLAN over each", append(slices.Clone(on), guest.NIC{MAC: spare, NoIPv6: true, Above: true}), []migration.Address{v4}, false},
		{"it has one all the same", off, []migration.Address{v4, v6}, false},
		{"it says nothing", nil, []migration.Address{v4}, false},
	} {
		if got := LacksIPv6(guest.Info{NICs: c.nics}, []config.NIC{{MAC: mac}, {MAC: spare}}, c.held); got != c.lacks {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestNextTable: tables of guests are ours alone, also of those that had others, and go by turns.
func TestNextTable(t *testing.T) {
	const first, last = guest.FirstTable, guest.FirstTable + guest.Tables - 1
	for highest, want := range map[int]int{0: first + 1, 100: first + 1, 900: first + 1, first: first + 1, first + 1: first + 2, last - 1: last, last: first + 1, 1 << 20: first + 1} {
		if got := NextTable(highest); got != want {
			t.Errorf("after %d: %d, want %d", highest, got, want)
		}
	}
}

func TestNextEndpoint(t *testing.T) {
	id, seen := uint8(0), map[uint8]bool{}
	for range 120 {
		id = NextEndpoint(id)
		if id%2 != 1 || seen[id] || seen[id+1] {
			t.Fatalf("pair %d, %d after %d others", id, id+1, len(seen))
		}
		seen[id], seen[id+1] = true, true
	}
	for last, want := range map[uint8]uint8{1: 3, 2: 3, 3: 5, 4: 5, 240: 1, 251: 1, 255: 1} {
		if got := NextEndpoint(last); got != want {
			t.Errorf("after %d: %d, want %d", last, got, want)
		}
	}
}

// TestOwnNIC: a MAC is a guest's however it is written.
func TestOwnNIC(t *testing.T) {
	d := config.Description{NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}}}
	if !OwnNIC(d, "52:54:00:00:01:0A") || OwnNIC(d, "52:54:00:00:01:0b") {
		t.Error("its NIC, or another's")
	}
}

// TestConfigure: a guest is told of the first endpoint of a pair, of what clients see of its address, and of the table
// that it used last where it is given no other.
func TestConfigure(t *testing.T) {
	h := care.Held{Description: config.Description{NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}}, Table: 101}
	v4 := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Gateway: netip.MustParseAddr("10.2.1.1"), Public: netip.MustParseAddr("203.0.113.10"), Endpoint: 4}
	v6 := migration.Address{Prefix: netip.MustParsePrefix("fd02::10/64"), Gateway: netip.MustParseAddr("fd02::1"), Public: netip.MustParseAddr("2001:db8::10"), Endpoint: 3}
	c := Configure(h, config.Network{MTU: 1400}, 1, []migration.Address{v4, v6}, 0, true)
	if c.MAC != "52:54:00:00:01:0b" || c.Table != 101 || c.MTU != 1400 || !c.Main || c.Endpoint != 3 || c.GatewayV4 != v4.Gateway || c.GatewayV6 != v6.Gateway ||
		!slices.Equal(c.Addrs, []netip.Prefix{v4.Prefix, v6.Prefix}) || !slices.Equal(c.Announce, []netip.Addr{v4.Public, v6.Public}) {
		t.Errorf("%+v", c)
	}
	if c := Configure(h, config.Network{}, 0, nil, 102, false); c.Table != 102 || c.MAC != "52:54:00:00:01:0a" {
		t.Errorf("%+v", c)
	}
}

// TestNotCurrent: what a guest keeps beside a new handover's is marked by none, and whoever had it before has it as it was.
func TestNotCurrent(t *testing.T) {
	before := []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.10/24"), Handover: "m-00000001"}}
	if kept := NotCurrent(before); kept[0].Handover != "" || kept[0].Prefix != before[0].Prefix || before[0].Handover == "" {
		t.Errorf("%+v of %+v", kept, before)
	}
}
