package agent

import (
	"slices"
	"strings"

	"godwit/agent/api"
	"godwit/agent/detour"
	"godwit/netstate"
)

// guestTunnels are the tunnels of one guest's detours.
func (a *Agent) guestTunnels(all []detour.Detour) []api.GuestTunnel {
	slices.SortFunc(all, func(a, b detour.Detour) int { return a.Up.Compare(b.Up) })
	var out []api.GuestTunnel
	for _, d := range all {
		kind := d.Kind()
		if kind == "" || !d.Tunnel.Local.IsValid() || !d.Tunnel.Remote.IsValid() {
			continue // at home, or its other end is not there yet
		}
		out = append(out, api.GuestTunnel{
			Kind: kind, Device: d.Tunnel.Name, Peer: d.Peer, Local: d.Tunnel.Local, Remote: d.Tunnel.Remote,
			Addresses: d.Taking(), NotLed: a.whyUnled(d),
		})
	}
	return out
}

// tunnelUse lists what uses this host's tunnels, by guest, also of guests that have
// gone and whose addresses are at home here.
func (a *Agent) tunnelUse() ([]api.TunnelUse, error) {
	byGuest := map[string]*api.TunnelUse{}
	for _, d := range a.detours.List("") {
		if d.NeedsNoTunnel() {
			continue
		}
		use := byGuest[d.Guest]
		if use == nil {
			use = &api.TunnelUse{Guest: d.Guest}
			byGuest[d.Guest] = use
		}
		use.Tunnels, use.Peers = append(use.Tunnels, d.Tunnel.Name), append(use.Peers, d.Peer)
		for _, addr := range d.Taking() {
			if !slices.Contains(use.Addresses, addr) {
				use.Addresses = append(use.Addresses, addr)
			}
		}
		if why := a.whyUnled(d); why != "" {
			use.NotLed = strings.TrimPrefix(use.NotLed+"; "+why, "; ")
		}
		if d.Until.After(use.Until) {
			use.Until = d.Until
		}
	}
	out := []api.TunnelUse{}
	for _, use := range byGuest {
		flows, err := netstate.Flows(use.Guest)
		if err != nil {
			return nil, err
		}
		use.Flows = append([]netstate.Flow{}, flows...)
		out = append(out, *use)
	}
	slices.SortFunc(out, func(a, b api.TunnelUse) int { return strings.Compare(a.Guest, b.Guest) })
	return out, nil
}
