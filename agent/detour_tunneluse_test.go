package agent

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/api"
	"godwit/agent/detour"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// A guest's tunnels are those of its detours that have both ends, the oldest first, with
// the kind that was made.
func TestGuestTunnels(t *testing.T) {
	here, there, third := netip.MustParseAddrPort("100.64.0.11:4001"), netip.MustParseAddrPort("100.65.0.11:4002"), netip.MustParseAddrPort("[fd65::11]:1")
	gre := detour.Detour{
		ID: "m-2", Peer: "oslo", Up: time.Unix(20, 0), Tunnel: tunnel.Config{Name: "gwt-2", Kind: tunnel.GRE, Local: here, Remote: third},
	}
	leads := detour.Detour{
		ID: "m-1", Peer: "rome", Up: time.Unix(10, 0), Tunnel: tunnel.Config{Name: "gwt-1", Kind: tunnel.Auto, Local: here, Remote: there},
		Away: []netstate.Away{{Addr: oursHere}}, Visiting: []netstate.Visiting{{Addr: theirsHere, Tunnel: "gwt-1"}},
	}
	half := detour.Detour{ID: "m-3", Tunnel: tunnel.Config{Name: "gwt-3", Local: here}}
	home := detour.Detour{ID: "m-4", Tunnel: leads.Tunnel, Leased: true, Visiting: []netstate.Visiting{{Addr: oursHere}}} // its tunnel has ended
	want := []api.GuestTunnel{
		{Kind: tunnel.WireGuard, Device: "gwt-1", Peer: "rome", Local: here, Remote: there, Addresses: []netip.Addr{oursHere, theirsHere}},
		{Kind: tunnel.GRE, Device: "gwt-2", Peer: "oslo", Local: here, Remote: third, Addresses: []netip.Addr{}},
	}
	got := (&Agent{}).guestTunnels(slices.Concat([]detour.Detour{gre, half}, []detour.Detour{home, leads}))
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

// TestTunnelOfWhatIsNotAtHome: of a guest that came home with an address of elsewhere, that one alone takes the tunnel
// by which both came.
func TestTunnelOfWhatIsNotAtHome(t *testing.T) {
	a, _ := counting(t)
	end := netip.MustParseAddrPort("100.64.0.11:4001")
	place(a, &detour.Detour{ID: "m-1", Guest: "web", Peer: "rome", Leased: true, Tunnel: tunnel.Config{Name: "gwt-1", Local: end, Remote: end},
		Visiting: []netstate.Visiting{{Addr: oursHere}, {Addr: theirsHere, Tunnel: "gwt-1"}}})
	all, err := a.tunnelUse()
	if err != nil || len(all) != 1 || !slices.Equal(all[0].Addresses, []netip.Addr{theirsHere}) {
		t.Errorf("the host has %+v, %v", all, err)
	}
	if of := a.guestTunnels(a.detours.List("web")); len(of) != 1 || !slices.Equal(of[0].Addresses, []netip.Addr{theirsHere}) {
		t.Errorf("the guest has %+v", of)
	}
}

// TestTunnelUse: of a guest that came home no address takes a tunnel any more.
func TestTunnelUse(t *testing.T) {
	a, _ := counting(t)
	place(a, &detour.Detour{ID: "m-1", Guest: "web", Peer: "rome", Leased: true, Tunnel: tunnel.Config{Name: "gwt-1"}, Visiting: []netstate.Visiting{{Addr: oursHere}}})
	place(a, &detour.Detour{ID: "m-2", Guest: "db", Peer: "oslo", Leased: true, Tunnel: tunnel.Config{Name: "gwt-2"}, Away: []netstate.Away{{Addr: theirsHere}}})
	all, err := a.tunnelUse()
	if err != nil || len(all) != 1 || all[0].Guest != "db" {
		t.Errorf("%+v, %v; want that of db alone", all, err)
	}
}
