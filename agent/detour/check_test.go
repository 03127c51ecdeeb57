package detour

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestIDsOfLongNames: the id of a detour that leads by a home and another host is one that can be read again, however long
// the names are that `godwit init` makes certificates of.
func TestIDsOfLongNames(t *testing.T) {
	long := func(letter string) string {
		name := letter
		for config.IsHostName(name + letter) {
			name += letter
		}
		return name
	}
	home, host := long("a"), long("b")
	for id, well := range map[string]bool{
		"m-00000001": true, "m-00000001-dallas": true, "m-00000001-" + home: true, "m-00000001-" + home + "-" + host: true,
		"m-00000001-" + home + "-" + host + strings.Repeat("c", 300): false, "m-1": false, "m-00000001-a/b": false, "m-00000001-": false,
	} {
		all := writtenDetours{id: {ID: id}}
		if err := all.Check(); (err == nil || !strings.Contains(err.Error(), "its id is not one")) != well {
			t.Errorf("%.40s…, of %d bytes: %v", id, len(id), err)
		}
	}
}

// TestWrittenDetours: what a file says of a detour that cannot be meant is refused: its words become devices, paths and
// routes.
func TestWrittenDetours(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.40")
	soon := netstate.Advertisement{Router: netip.MustParseAddr("fe80::1"), Message: append([]byte{134}, make([]byte, 15)...)}
	later := netstate.Advertisement{Router: netip.MustParseAddr("fe80::2"), Message: soon.Message}
	for name, c := range map[string]struct {
		change func(*Detour)
		word   string
	}{
		"good":                 {func(*Detour) {}, ""},
		"a path as its guest":  {func(d *Detour) { d.Guest = "../x" }, "not a name"},
		"a tunnel elsewhere":   {func(d *Detour) { d.Tunnel.Dir = "/etc" }, "is not one of ours"},
		"a path as its tunnel": {func(d *Detour) { d.Tunnel.Name = "../../x" }, "is not one of ours"},
		"a tap":                {func(d *Detour) { d.Taps = []string{"gw/x"} }, "is not a device"},
		"a tap away":           {func(d *Detour) { d.Away[0].Tap = "gw/x" }, "is not a device"},
		"a visitor's tap":      {func(d *Detour) { d.Visiting[0].Tap = "gw/x" }, "is not a device"},
		"a visitor's other":    {func(d *Detour) { d.Visiting[0].Taps = []string{"gw/x"} }, "is not a device"},
		"a visitor's tunnel":   {func(d *Detour) { d.Visiting[0].Tunnel = "gw/x" }, "is not a device"},
		"one that comes":       {func(d *Detour) { d.Coming = []netstate.Visiting{{Addr: addr, Tap: "gw/x"}} }, "is not a device"},
		"one that it replaced": {func(d *Detour) { d.Sent = map[string][]netstate.Away{"m": {{Addr: addr, Tap: "gw/x"}}} }, "is not a device"},
		"one that stands":      {func(d *Detour) { d.Standing = []netstate.Away{{Addr: addr, Tap: "gw/x"}} }, "is not a device"},
		"off the link":         {func(d *Detour) { d.OffLink = &OffLink{Tap: "gw/x"} }, "is not a device"},
		"no router":            {func(d *Detour) { d.OffLink = &OffLink{Tap: "gw1", Routers: make([]netip.Addr, 1)} }, "an address that is none"},
		"nothing heard":        {func(d *Detour) { d.OffLink = &OffLink{Tap: "gw1", Heard: make([]netstate.Advertisement, 1)} }, "router"},
		"no address away":      {func(d *Detour) { d.Away[0].Addr = netip.Addr{} }, "an address that is none"},
		"no visitor":           {func(d *Detour) { d.Visiting[0].Addr = netip.Addr{} }, "an address that is none"},
		"none comes":           {func(d *Detour) { d.Coming = make([]netstate.Visiting, 1) }, "an address that is none"},
		"none was replaced":    {func(d *Detour) { d.Sent = map[string][]netstate.Away{"m": make([]netstate.Away, 1)} }, "an address that is none"},
		"none stands":          {func(d *Detour) { d.Standing = make([]netstate.Away, 1) }, "an address that is none"},
		"more than a guest's":  {func(d *Detour) { d.Away = slices.Repeat(d.Away, mostEntries) }, "addresses"},
		"more in all":          {func(d *Detour) { d.Sent = map[string][]netstate.Away{"m": slices.Repeat(d.Away, mostEntries)} }, "addresses"},
		"another's id":         {func(d *Detour) { d.ID = "m-00000002" }, "its id is not one"},
		"all of a guest's":     {func(d *Detour) { d.Away, d.Visiting = slices.Repeat(d.Away, mostEntries), nil }, ""},
		"all taps":             {func(d *Detour) { d.Taps = slices.Repeat([]string{"gw1"}, mostTaps) }, ""},
		"a router heard twice": {func(d *Detour) { d.OffLink = &OffLink{Tap: "gw1", Heard: []netstate.Advertisement{soon, soon}} }, "named twice"},
		"two routers heard":    {func(d *Detour) { d.OffLink = &OffLink{Tap: "gw1", Heard: []netstate.Advertisement{soon, later}} }, ""},
		"too many heard": {func(d *Detour) {
			d.OffLink = &OffLink{Tap: "gw1", Heard: slices.Repeat([]netstate.Advertisement{soon}, netstate.MaxAdvertisements+1)}
		}, "at most"},
		"more taps": {func(d *Detour) { d.Taps = slices.Repeat([]string{"gw1"}, mostTaps+1) }, "taps"},
	} {
		d := &Detour{
			ID: "m-00000001-rome", Guest: "web", Peer: "rome", Tunnel: tunnel.Config{Name: "gwt-00000001", Dir: "/run/godwit/tunnels"}, Taps: []string{"gw1"},
			Away: []netstate.Away{{Addr: addr, Tap: "gw1"}}, Visiting: []netstate.Visiting{{Addr: addr, Tap: "gw1", Tunnel: "gwt-00000001"}},
		}
		c.change(d)
		if err := (writtenDetours{"m-00000001-rome": d}).Check(); (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", name, err, c.word)
		}
	}
}

// TestTooManyDetours: a host has no more than it could have made.
func TestTooManyDetours(t *testing.T) {
	all := writtenDetours{}
	for n := range mostDetours {
		id := fmt.Sprintf("m-%08x", n)
		all[id] = &Detour{ID: id, Guest: "web"}
	}
	if err := all.Check(); err != nil {
		t.Error(err)
	}
	all["m-0000ffff"] = &Detour{ID: "m-0000ffff", Guest: "web"}
	if err := all.Check(); err == nil {
		t.Errorf("%d are read", len(all))
	}
}
