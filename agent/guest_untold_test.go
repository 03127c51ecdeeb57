package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// having is a guest with a channel whose two NICs have these addresses; "temporary" is before those of that kind.
func having(t *testing.T, first, second []string) *guests.Guest {
	t.Helper()
	var info guest.Info
	for i, addrs := range [][]string{first, second} {
		nic := guest.NIC{MAC: []string{"52:54:00:00:01:0A", "52:54:00:00:01:0b"}[i], Up: len(addrs) > 0}
		for _, a := range addrs {
			a, temporary := strings.CutPrefix(a, "temporary ")
			if nic.Addrs = append(nic.Addrs, netip.MustParsePrefix(a)); temporary {
				nic.Temporary = append(nic.Temporary, netip.MustParsePrefix(a).Addr())
			}
		}
		info.NICs = append(info.NICs, nic)
	}
	g := talking(t, map[string]guest.Handler{"info": answers(info, nil)})
	g.Remember(func(h *care.Held) { h.Description.Channel = "/run/web/guest.sock" })
	return g
}

// inARow are the first n addresses from 10.2.1.20 on.
func inARow(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.2.1.%d/24", 20+i))
	}
	return all
}

// TestAdoptedAddresses: a guest that is adopted has its addresses on one NIC, which is active;
// where both have some, nothing is guessed.
func TestAdoptedAddresses(t *testing.T) {
	a := between(t)
	a.config.Network.V6 = netip.MustParsePrefix("fd00:2:1::/64")
	for _, c := range []struct {
		name                 string
		first, second, named []string
		active               int
		held                 []string
		refused              string
	}{
		{name: "the first", first: []string{"10.2.1.20/24", "10.2.1.21/24", "192.168.7.1/24"}, held: []string{"10.2.1.20/24", "10.2.1.21/24"}},
		{name: "the second", second: []string{"10.2.1.20/24"}, active: 1, held: []string{"10.2.1.20/24"}},
		{name: "another subnet's on the spare one", first: []string{"10.2.1.20/24"}, second: []string{"192.168.7.1/24"}, held: []string{"10.2.1.20/24"}},
		{name: "both", first: []string{"10.2.1.20/24"}, second: []string{"10.2.1.99/24"},
			refused: "both of its NICs have addresses that would move (52:54:00:00:01:0a has 10.2.1.20, 52:54:00:00:01:0b has 10.2.1.99)"},
		{name: "a router advertises to both", first: []string{"10.2.1.20/24"}, second: []string{"fd00:2:1::99/64"}, refused: "and one must be spare"},
		{name: "temporary ones", first: []string{"temporary fd00:2:1::98/64", "fd00:2:1::99/64", "10.2.1.20/24", "temporary fd00:2:1::97/64"}, held: []string{"fd00:2:1::99/64", "10.2.1.20/24"}},
		{name: "a temporary one that is named", first: []string{"temporary fd00:2:1::98/64", "fd00:2:1::99/64"}, named: []string{"fd00:2:1::98/64"}, held: []string{"fd00:2:1::98/64"}},
		{name: "nothing but a temporary one", first: []string{"temporary fd00:2:1::98/64"}, refused: "it has no address of this site's subnet"},
		{name: "both, one of which is named", first: []string{"10.2.1.20/24"}, second: []string{"10.2.1.99/24"}, named: []string{"10.2.1.20/24"}, held: []string{"10.2.1.20/24"}},
		{name: "both are named", first: []string{"10.2.1.20/24"}, second: []string{"10.2.1.99/24"}, named: []string{"10.2.1.20/24", "10.2.1.99/24"}, refused: "both of its NICs"},
		{name: "one with two prefixes", first: []string{"10.2.1.20/24", "10.2.1.20/32"}, held: []string{"10.2.1.20/24"}},
		{name: "as many as move", first: inARow(64), held: inARow(64)},
		{name: "too many", first: inARow(65), refused: "it has 65 addresses of this site's subnet, and no more than 64 move"},
		{name: "none", refused: "it has no address of this site's subnet"},
	} {
		g := having(t, c.first, c.second)
		for _, addr := range c.named {
			g.Remember(func(h *care.Held) {
				h.Description.Addresses = append(h.Description.Addresses, migration.Address{Prefix: netip.MustParsePrefix(addr)})
			})
		}
		err := a.learn(t.Context(), g)
		refusedBy(t, c.name, err, c.refused)
		var held []string
		for _, addr := range g.Held().Addresses {
			held = append(held, addr.Prefix.String())
		}
		if err == nil && (g.Held().Active != c.active || !slices.Equal(held, c.held)) {
			t.Errorf("%s: NIC %d, %v; want %d, %v", c.name, g.Held().Active, held, c.active, c.held)
		}
	}
}

// TestAdoptedClaims: a guest that is adopted holds nobody else's address, whether it says that it has that or its
// description does.
func TestAdoptedClaims(t *testing.T) {
	a := between(t)
	a.config.Network.Gateway4 = netip.MustParseAddr("10.2.1.1")
	at := func(addr string) []migration.Address {
		return []migration.Address{{Prefix: netip.MustParsePrefix(addr)}}
	}
	underCare(t, a.guests, "db", guests.New(care.Held{Description: config.Description{Name: "db"}, Addresses: at("10.2.1.30/24")}, nil))
	coming := guests.New(care.Held{Description: config.Description{Name: "mail"}}, nil)
	a.guests.ExpectAgain(coming)
	a.guests.GiveAddresses(coming, at("10.2.1.31/24"))
	place(a, &detour.Detour{ID: "m-00000001", Guest: "shop", Away: []netstate.Away{{Addr: netip.MustParseAddr("10.2.1.32")}}})
	place(a, &detour.Detour{ID: "m-00000002", Guest: "web", Away: []netstate.Away{{Addr: netip.MustParseAddr("10.2.1.33")}}})
	if err := a.book.Promise(netip.MustParseAddr("10.2.1.34"), "wiki"); err != nil {
		t.Fatal(err)
	}
	for addr, refused := range map[string]string{
		"10.2.1.20/24":  "",
		"10.2.1.33/24":  "", // it left that here itself
		"10.2.1.1/24":   "10.2.1.1 is the router here",
		"10.2.1.255/24": "10.2.1.255 is the broadcast address here",
		"10.2.1.30/24":  "10.2.1.30 is guest db's here",
		"10.2.1.31/24":  "10.2.1.31 is guest mail's here",
		"10.2.1.32/24":  "10.2.1.32 is guest shop's here",
		"10.2.1.34/24":  "10.2.1.34 is guest wiki's here",
	} {
		says := having(t, []string{"10.2.1.21/24", addr}, nil)
		named := having(t, []string{"10.2.1.21/24", addr}, nil)
		named.Remember(func(h *care.Held) { h.Description.Addresses = at(addr) })
		silent := having(t, nil, nil)
		silent.Remember(func(h *care.Held) { h.Description.Channel, h.Description.Addresses = "", at(addr) })
		for how, g := range map[string]*guests.Guest{"says": says, "named": named, "silent": silent} {
			err := a.learn(t.Context(), g)
			refusedBy(t, addr+", "+how, err, refused)
			if err != nil && (len(g.Held().Addresses) > 0 || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s, %s: holds %v, %v", addr, how, g.Held().Addresses, err)
			}
		}
	}
	for addr, refused := range map[string]string{"10.1.1.20/24": "", "10.1.1.1/24": "10.1.1.1 is the router"} {
		away := having(t, nil, nil)
		away.Remember(func(h *care.Held) {
			h.Description.Channel, h.Description.Addresses = "", []migration.Address{{
				Prefix: netip.MustParsePrefix(addr), Gateway: netip.MustParseAddr("10.1.1.1"), Home: "paris"}}
		})
		refusedBy(t, addr+" of another site", a.learn(t.Context(), away), refused)
	}
}

// TestUntoldAddresses: the check names what the guest has of the subnet here beside what it is known
// for, and nothing of our own.
func TestUntoldAddresses(t *testing.T) {
	a := between(t)
	a.config.Network.V6 = netip.MustParsePrefix("fd00:2:1::/64")
	here := func(addr, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(addr), Home: home}
	}
	for _, c := range []struct {
		name          string
		first, second []string
		to            string
		said          []string
	}{
		{"what it is known for", []string{"10.2.1.20/24", "10.1.1.20/32", "fe80::1/64", "192.168.7.1/24"}, nil, "oslo", nil},
		{"a service's", []string{"10.2.1.20/24", "10.2.1.21/24", "10.2.1.22/32"}, nil, "oslo", []string{"also has 10.2.1.21 and 10.2.1.22 of the subnet here"}},
		{"by a client of DHCP on both", []string{"10.2.1.20/24"}, []string{"10.2.1.99/24"}, "oslo", []string{"10.2.1.99"}},
		{"by a router's advertisements", []string{"10.2.1.20/24", "fd00:2:1::20/64"}, nil, "oslo", []string{"fd00:2:1::20"}},
		{"what the spare one lingers for, or was made ready for", []string{"10.2.1.20/24"}, []string{"10.1.1.20/32", "10.2.1.30/32"}, "oslo", nil},
		{"many", []string{"10.2.1.1/24", "10.2.1.2/24", "10.2.1.3/24", "10.2.1.4/24", "10.2.1.5/24", "10.2.1.6/24", "10.2.1.7/24", "10.2.1.8/24", "10.2.1.9/24"}, nil, "oslo",
			[]string{"10.2.1.8 and 1 more of the subnet"}},
		{"temporary ones", []string{"10.2.1.20/24", "temporary fd00:2:1::98/64", "temporary fd00:2:1::97/64"}, nil, "oslo",
			[]string{"also has fd00:2:1::98 and fd00:2:1::97 here, by which it begins connections for some hours (RFC 8981): temporary addresses do not move"}},
		{"temporary ones on the same LAN", []string{"10.2.1.20/24", "temporary fd00:2:1::98/64"}, nil, "rome", nil},
		{"on the same LAN", []string{"10.2.1.20/24", "10.2.1.21/24"}, nil, "rome", nil},
	} {
		g := having(t, c.first, c.second)
		g.Remember(func(h *care.Held) {
			h.Addresses = []migration.Address{here("10.2.1.20/24", "rome"), here("10.1.1.20/24", "paris")}
		})
		plan := migration.Plan{Guest: "web", FromSite: "rome", ToSite: c.to, Network: "tunnel", Held: g.Held().Addresses}
		m := &outgoing{a: a, guest: g, plan: plan, work: &sourceWork{}, rec: record.New("rome", plan, time.Now())}
		if err := m.checkGuest(t.Context()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var said []string
		for _, note := range m.rec.Snapshot().Notes {
			if strings.Contains(note, "the guest also has") {
				said = append(said, note)
			}
		}
		if len(said) != len(c.said) || len(said) > 0 && !strings.Contains(said[0], c.said[0]) {
			t.Errorf("%s: %q, want %q", c.name, said, c.said)
		}
	}
}
