package guest

import (
	"context"
	"net/netip"
)

// Kinds of connections.
const (
	KindMPTCP = "mptcp"
	KindTCP   = "tcp" // plain TCP, and what began as MPTCP and fell back
	KindUDP   = "udp" // sockets with a fixed peer
)

// A Connection is one of the guest's, as its kernel lists it.
type Connection struct {
	Kind   string         `json:"kind"`
	Local  netip.AddrPort `json:"local"` // as it began; its first subflow may have closed since
	Remote netip.AddrPort `json:"remote"`
	State  string         `json:"state,omitempty"`
	// Working are the addresses and ports here of its established subflows.
	Working []netip.AddrPort `json:"working,omitempty"`
	// Fallback: it began as MPTCP and goes on as plain TCP, which cannot follow.
	Fallback bool `json:"fallback,omitempty"`
}

// Connections is the list of those on some addresses. Those that the kernel is only
// finishing are left out.
type Connections struct {
	List    []Connection `json:"list"`
	Omitted int          `json:"omitted,omitempty"` // more than ConnectionsListed
}

// ConnectionsListed bounds the list to what fits into a line of the channel.
const ConnectionsListed = 2000

// ConnectionsMethod is the channel's method; guests of other makes may lack it (see
// Info.Capabilities).
const ConnectionsMethod = "connections"

// Connections lists the guest's connections that have an end on one of addrs.
func (c *Client) Connections(ctx context.Context, addrs ...netip.Addr) (Connections, error) {
	var all Connections
	err := c.Call(ctx, ConnectionsMethod, map[string][]netip.Addr{"addrs": addrs}, &all)
	return all, err
}
