package netstate

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// longest is a state whose names, addresses and numbers are as long as they can be.
func longest() State {
	name := func(first string) string { return first + strings.Repeat("n", 15-len(first)) }
	addr := func(first string) netip.Addr { return netip.MustParseAddr(first + strings.Repeat(":ffff", 7)) }
	mac := net.HardwareAddr{0x52, 0x54, 0, 0xff, 0xff, 0xff}
	taps, tunnel := []string{name("tap0"), name("tap1")}, "gwt-00000000" // as agents name them
	const mtu, table = 9000, 0x66ffffff
	visiting := Visiting{Addr: addr("2001"), MAC: mac, Tap: taps[0], Taps: taps, Gateway: addr("2002"), Tunnel: tunnel, Fits: mtu, Asks: true, Renews: true, Publish: table, Direct: true}
	waits := visiting
	waits.Addr, waits.Publish, waits.Direct, waits.Waits = addr("2003"), 0, false, true
	home := visiting
	home.Addr, home.Tunnel, home.Publish, home.Direct, home.Known = addr("2004"), "", 0, false, mac
	away := Away{Addr: addr("2005"), MAC: mac, Tap: taps[0], Tunnel: tunnel, Gateway: addr("2006"), Fits: mtu, Active: true,
		Subnet: netip.PrefixFrom(addr("2005"), 127)}
	transit := Away{Addr: addr("2007"), MAC: mac, Tap: taps[0], Tunnel: tunnel, Home: tunnel, Fits: mtu, Active: true}
	routers := make([]netip.Addr, MaxAdvertisements)
	for i := range routers {
		routers[i] = netip.MustParseAddr("fe80::fff" + string(rune('0'+i)) + ":ffff:ffff:ffff")
	}
	return State{Guest: strings.Repeat("g", maxGuest), Bridge: name("br"), LAN: name("lan"), Taps: taps,
		Away: []Away{away, transit}, Visiting: []Visiting{visiting, waits, home}, OffLink: []OffLink{{Tap: taps[0], Routers: routers}}}
}

// TestLongestNames: the notes and rules of such a state find room, and say what it is.
func TestLongestNames(t *testing.T) {
	s, bridge := longest(), net.HardwareAddr{0x52, 0x54, 0, 0xff, 0xff, 0xfe}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	lines := notes(s, bridge)
	all := slices.Concat(lines, comments(ingress(s, bridge)), comments(egress(s)), comments(input(s, nil)))
	for _, r := range wanted(s) {
		switch r := r.(type) {
		case opening:
			all = append(all, r.comment())
		case asking:
			all = append(all, r.comment())
		case sysctl:
			all = append(all, remember(map[string]string{r.path: "1" + byHost})...)
		}
	}
	for _, line := range all {
		if len(line) > maxComment {
			t.Errorf("%d characters, and %d at most: %s", len(line), maxComment, line)
		}
	}
	read, mac, err := readNotes(s.Guest, lines)
	if err != nil || !slices.Equal(notes(read, mac), lines) {
		t.Errorf("read as %+v: %v", read, err)
	}
	for _, name := range slices.Concat(counters(s), []string{chainUp + s.Guest, flowSet(s.Guest, false).Name, untracked{s.Away[0].Addr}.chain()}) {
		if len(name) > 255 { // NFT_NAME_MAXLEN, and its end
			t.Errorf("%d characters: %s", len(name), name)
		}
	}
}

// TestNamesOfTaps: one that a note cannot hold would be read as another, or as two, and not be closed.
func TestNamesOfTaps(t *testing.T) {
	for _, name := range []string{"a,b", "a=b", "a b", "a/b", `a"b`, strings.Repeat("x", 16)} {
		for what, change := range map[string]func(*State){
			"the guest's": func(s *State) { s.Taps[1] = name }, "away": func(s *State) { s.Away[0].Tap = name },
			"visiting": func(s *State) { s.Visiting[0].Tap = name }, "a visitor's": func(s *State) { s.Visiting[1].Taps = []string{name} },
		} {
			s := longest()
			change(&s)
			if err := s.validate(); err == nil {
				t.Errorf("tap %q, %s: accepted", name, what)
			}
		}
	}
}

// TestZoneOfGateway: text behind a router's address is no other word of a note.
func TestZoneOfGateway(t *testing.T) {
	for zone, ok := range map[string]bool{"br0": true, "x publish=254": false, "x\ttap=eth0": false, "x\nactive": false, strings.Repeat("x", 200): false} {
		for what, change := range map[string]func(*State, netip.Addr){
			"away": func(s *State, g netip.Addr) { s.Away[0].Gateway = g }, "visiting": func(s *State, g netip.Addr) { s.Visiting[0].Gateway = g },
		} {
			s := longest()
			change(&s, netip.MustParseAddr("fe80::1").WithZone(zone))
			if err := s.validate(); (err == nil) != ok || err != nil && strings.ContainsAny(err.Error(), "\n\t") {
				t.Errorf("%s, %q: %v", what, zone, err)
			}
		}
	}
}

// TestWayOfTransit: an address in transit has a device that leads it home, and no gateway.
func TestWayOfTransit(t *testing.T) {
	for what, change := range map[string]func(*Away){
		"with a gateway": func(a *Away) { a.Gateway = netip.MustParseAddr("fe80::1") }, "by no device": func(a *Away) { a.Home = "a b" },
	} {
		s := longest()
		if change(&s.Away[1]); s.validate() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// TestWhoAsksAll: the NIC by which a visitor renews its lease asks its own home alone; by the other one it asks nobody.
func TestWhoAsksAll(t *testing.T) {
	v := longest().Visiting[0]
	for asks, want := range map[[2]bool][]bool{{true, true}: {true, false}, {true, false}: {false, false}, {false, false}: nil} { // of all, for each tap
		v.Asks, v.Renews = asks[0], asks[1]
		var got []bool
		for _, r := range ingressVisiting("web", v, net.HardwareAddr{2, 0, 0, 0, 0, 1}) {
			if strings.HasPrefix(r.comment, "asks dhcp=") {
				got = append(got, strings.HasSuffix(r.comment, " of=all"))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("asks, renews %v: %v, want %v", asks, got, want)
		}
	}
}
