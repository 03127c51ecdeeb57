package agent

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/agent/detour"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TunnelUse is one guest's detours on this host, and what takes them.
type TunnelUse struct {
	Guest     string          `json:"guest"`
	Tunnels   []string        `json:"tunnels"`        // devices
	Peers     []string        `json:"peers"`          // hosts at their other ends
	Addresses []netip.Addr    `json:"addresses"`      // that take them
	Until     time.Time       `json:"until,omitzero"` // end of the lease; zero: a migration is under way, or for good
	Flows     []netstate.Flow `json:"flows"`          // of the last netstate.FlowMemory
}

// GuestTunnel is this host's end of a tunnel that leads to or from a guest here: what the
// firewalls between the two hosts must pass. Tunnels for memory are not among them.
type GuestTunnel struct {
	Kind      string         `json:"kind"`
	Device    string         `json:"device"`
	Peer      string         `json:"peer"`      // host at the other end
	Local     netip.AddrPort `json:"local"`     // outer address, and port of UDP; a mere number for gre and ipip
	Remote    netip.AddrPort `json:"remote"`    // the same of the other end
	Addresses []netip.Addr   `json:"addresses"` // the guest's, that take it
}

// guestTunnels are the tunnels of one guest's detours.
func guestTunnels(all []detour.Detour) []GuestTunnel {
	slices.SortFunc(all, func(a, b detour.Detour) int { return a.Up.Compare(b.Up) })
	var out []GuestTunnel
	for _, d := range all {
		if !d.Tunnel.Local.IsValid() || !d.Tunnel.Remote.IsValid() {
			continue // at home, or its other end is not there yet
		}
		kind := d.Tunnel.Kind
		if kind == "" || kind == tunnel.Auto {
			kind = tunnel.WireGuard
		}
		out = append(out, GuestTunnel{
			Kind: kind, Device: d.Tunnel.Name, Peer: d.Peer, Local: d.Tunnel.Local, Remote: d.Tunnel.Remote,
			Addresses: append([]netip.Addr{}, d.Addresses()...),
		})
	}
	return out
}

// tunnelUse lists what uses this host's tunnels, by guest, also of guests that have
// gone and whose addresses are at home here.
func (a *Agent) tunnelUse() ([]TunnelUse, error) {
	byGuest := map[string]*TunnelUse{}
	for _, d := range a.detours.List("") {
		use := byGuest[d.Guest]
		if use == nil {
			use = &TunnelUse{Guest: d.Guest}
			byGuest[d.Guest] = use
		}
		use.Tunnels, use.Peers = append(use.Tunnels, d.Tunnel.Name), append(use.Peers, d.Peer)
		for _, addr := range d.Addresses() {
			if !slices.Contains(use.Addresses, addr) {
				use.Addresses = append(use.Addresses, addr)
			}
		}
		if d.Until.After(use.Until) {
			use.Until = d.Until
		}
	}
	out := []TunnelUse{}
	for _, use := range byGuest {
		flows, err := netstate.Flows(use.Guest)
		if err != nil {
			return nil, err
		}
		use.Flows = append([]netstate.Flow{}, flows...)
		out = append(out, *use)
	}
	slices.SortFunc(out, func(a, b TunnelUse) int { return strings.Compare(a.Guest, b.Guest) })
	return out, nil
}
