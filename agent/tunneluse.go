package agent

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/netstate"
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

// tunnelUse lists what uses this host's tunnels, by guest, also of guests that have
// gone and whose addresses are at home here.
func (a *Agent) tunnelUse() ([]TunnelUse, error) {
	byGuest := map[string]*TunnelUse{}
	for _, d := range a.detours.list("") {
		use := byGuest[d.Guest]
		if use == nil {
			use = &TunnelUse{Guest: d.Guest}
			byGuest[d.Guest] = use
		}
		use.Tunnels, use.Peers = append(use.Tunnels, d.Tunnel.Name), append(use.Peers, d.Peer)
		for _, addr := range d.addresses() {
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
