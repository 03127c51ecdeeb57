package guest

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
)

// A Listener is where a program of the guest takes new clients.
type Listener struct {
	Kind  string         `json:"kind"` // KindTCP, of MPTCP, too, or KindUDP
	Local netip.AddrPort `json:"local"`
}

// Listeners are those on some addresses alone.
type Listeners struct {
	List    []Listener `json:"list"`
	Omitted int        `json:"omitted,omitempty"` // more than are listed
}

// ListenersListed bounds the list.
const ListenersListed = 100

// CapListeners is the capability to list them.
const CapListeners = "listeners"

// Listeners are the guest's that listen on one of addrs, and not on all. It needs CapListeners.
func (c *Client) Listeners(ctx context.Context, addrs ...netip.Addr) (Listeners, error) {
	var listeners Listeners
	err := c.Call(ctx, CapListeners, map[string][]netip.Addr{"addrs": addrs}, &listeners)
	return listeners, err
}

// Sockets of UDP that are bound to an address are those of clients, too: of DHCP, and with ports from here on, which
// kernels choose (net.ipv4.ip_local_port_range).
const (
	portDHCPv4 = 68
	portDHCPv6 = 546
	portChosen = 32768
)

// ListenersAlone are those of all the guest's listeners, as its kernel lists them, that listen on one of addrs alone.
// Where another has the same port of all addresses, new clients come to that.
func ListenersAlone(all []Listener, addrs []netip.Addr) Listeners {
	alone := Listeners{List: []Listener{}}
	for _, l := range all {
		port := l.Local.Port()
		client := l.Kind == KindUDP && (port == portDHCPv4 || port == portDHCPv6 || port >= portChosen)
		if client || !slices.Contains(addrs, l.Local.Addr()) || slices.ContainsFunc(all, func(o Listener) bool {
			return o.Kind == l.Kind && o.Local.Port() == port && o.Local.Addr().IsUnspecified() && o.Local.Addr().Is4() == l.Local.Addr().Is4()
		}) {
			continue
		}
		alone.List = append(alone.List, l)
	}
	slices.SortFunc(alone.List, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), a.Local.Compare(b.Local))
	})
	alone.List = slices.Compact(alone.List) // of several sockets of one port each takes a share
	if more := len(alone.List) - ListenersListed; more > 0 {
		alone.List, alone.Omitted = alone.List[:ListenersListed], more
	}
	return alone
}

func (l *Listeners) bounds(b *bounds) {
	b.most("listeners", len(l.List), ListenersListed)
	for _, one := range l.List {
		b.words("a listener's kind", one.Kind)
		b.ends(one.Local)
	}
}
