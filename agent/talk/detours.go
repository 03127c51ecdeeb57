package talk

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// What two hosts ask each other of a detour, when the migration that made it is over, or of a guest that has gone on.

// Repoint asks an address's home to send it to another host.
type Repoint struct {
	Migration string         `json:"migration"`
	Guest     string         `json:"guest"`
	Addresses []netip.Addr   `json:"addresses"`
	Home      string         `json:"home,omitempty"` // of addresses that the host does not send away yet: who hands them over to it, as its subnet agent
	TunnelKey string         `json:"tunnel_key"`
	Tunnel    netip.AddrPort `json:"tunnel"`
	TunnelTo  netip.Addr     `json:"tunnel_to,omitzero"` // at which uplink its other end is to be; invalid: at the first that carries guests
	Kind      string         `json:"kind"`
	Lease     time.Duration  `json:"lease"`             // hosts' clocks differ: what is left, not until when
	Forever   bool           `json:"forever,omitempty"` // no end
	// Go: the tunnel's other end stands, too, and was tried. Only then the addresses are
	// sent there: what comes before would fill the tunnel's own queue and be lost.
	Go bool `json:"go,omitempty"`
}

// mostWayID bounds what a detour is called, bytes.
const mostWayID = 512

// Check says what of a request to repoint cannot be meant at this host.
func (r Repoint) Check(here string) error {
	wrong := func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "repoint: " + fmt.Sprintf(format, args...)}
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(r.Migration, "m-"), "-")
	switch {
	case !migration.ValidID("m-"+id) || r.Migration != detour.WayID("m-"+id, r.Home, here):
		return wrong("detour %.100q is not one to host %s", r.Migration, here)
	case r.Home != "" && (!config.IsWord(r.Home) || len(r.Migration) > mostWayID): // it becomes part of paths
		return wrong("home %.100q: no host's name", r.Home)
	case !config.IsGuestName(r.Guest):
		return wrong("guest %.100q: not a name", r.Guest)
	case len(r.Addresses) == 0 || len(r.Addresses) > migration.MostAddresses:
		return wrong("%d addresses", len(r.Addresses))
	case r.Lease < 0 || r.Lease > config.MostLease:
		return wrong("a lease of %v", r.Lease)
	case !slices.Contains(migration.Tunnels, r.Kind) && r.Kind != "":
		return wrong("tunnel %.40q is unknown", r.Kind)
	case !r.Tunnel.IsValid() || r.Tunnel.Port() == 0:
		return wrong("the tunnel's end is no address")
	}
	if _, err := tunnel.ParseKey(r.TunnelKey); err != nil {
		return wrong("the tunnel's key is not one")
	}
	for i, addr := range r.Addresses {
		if !addr.IsValid() || slices.Contains(r.Addresses[:i], addr) {
			return wrong("address %s is none, or is named twice", addr)
		}
	}
	return nil
}

// LeadOver asks the other end of a leased detour to go on by another pair of uplinks.
type LeadOver struct {
	Tunnel   netip.AddrPort `json:"tunnel"`    // where the caller's end is from now on
	TunnelTo netip.Addr     `json:"tunnel_to"` // at which uplink the other end is to be
}

// Prolonged asks the other end of a leased detour to keep it for so long from now on.
type Prolonged struct {
	Lease time.Duration `json:"lease"` // hosts' clocks differ: what is left, not until when
}

// Led is what a home asks the host to which it sends addresses: are they led on to another?
type Led struct {
	Guest     string       `json:"guest"`
	Addresses []netip.Addr `json:"addresses"`
	To        string       `json:"to"`
	Hops      int          `json:"hops"` // hosts that may be asked after this one, where the guest went on more than once
}

// MostHops bounds how far a guest is followed.
const MostHops = 4

// Check says what of such a question cannot be meant.
func (l Led) Check() error {
	if l.Hops < 0 || l.Hops > MostHops || len(l.Addresses) == 0 || len(l.Addresses) > migration.MostAddresses {
		return NotBelieved("led on: %d addresses, over %d hosts", len(l.Addresses), l.Hops)
	}
	return nil
}

// Handing is what a subnet agent asks a home: does it hand these over, led to that host?
type Handing struct {
	Guest     string       `json:"guest"`
	Addresses []netip.Addr `json:"addresses"`
	To        string       `json:"to"` // host that has the guest
}

// Handed is the home's answer: what its neighbours know of each address.
type Handed struct {
	Addresses []HandedAddress `json:"addresses"`
}

// HandedAddress is one of them.
type HandedAddress struct {
	Addr netip.Addr `json:"addr"`
	MAC  string     `json:"mac"`
	Fits int        `json:"fits,omitempty"` // as of netstate.Away
}

// Standing is what the home's answer makes of those addresses that it was asked for, once the subnet agent in network n
// sends them away. What comes back from them leaves by the guests' router; where the agent is that itself, by its own
// routes.
func (h Handed) Standing(n config.Network, addrs []netip.Addr) ([]netstate.Away, error) {
	var out []netstate.Away
	for _, at := range h.Addresses {
		mac, err := net.ParseMAC(at.MAC)
		named := slices.ContainsFunc(out, func(o netstate.Away) bool { return o.Addr == at.Addr })
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 || at.Fits < 0 || at.Fits > 1<<16 || named || !slices.Contains(addrs, at.Addr) {
			return nil, NotBelieved("address %s at %.40q: not one that was asked for", at.Addr, at.MAC)
		}
		away := netstate.Away{Addr: at.Addr, MAC: mac, Fits: at.Fits}
		if router := n.GatewayOf(at.Addr.Is4()); !n.IsItself(router) {
			away.Gateway, away.Subnet = router, n.SubnetOf(at.Addr).Masked()
		}
		out = append(out, away)
	}
	if len(out) != len(addrs) {
		return nil, NotBelieved("%d of %d addresses are handed over", len(out), len(addrs))
	}
	return out, nil
}
