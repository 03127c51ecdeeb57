package guest

import (
	"context"
	"fmt"
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
	// Outward: a container behind the guest began it, and the guest forwards it in its own name. A kernel that
	// masquerades forgets it as its packets leave by another NIC.
	Outward bool `json:"outward,omitempty"`
	// Over: its ends have closed it, or one has reset it. Of Outward ones that a list before had told, as others that
	// are missing then were forgotten; not every guest can say so.
	Over bool `json:"over,omitempty"`
}

// Connections is the list of those on some addresses, or a part of it. Those that the
// kernel is only finishing are left out.
type Connections struct {
	List    []Connection `json:"list"`
	Omitted int          `json:"omitted,omitempty"` // how many come after this part
	Number  uint64       `json:"number,omitempty"`  // of the list, to ask for what comes after
}

const (
	// ConnectionsListed bounds one part to what fits into a line of the channel.
	ConnectionsListed = 2000
	// ConnectionsMost bounds the list that is put together of parts.
	ConnectionsMost = 20000
)

// ConnectionsMethod is the channel's method; guests of other makes may lack it (see
// Info.Capabilities).
const ConnectionsMethod = "connections"

// connectionsParams: From is how many of the list Number the parts before have told.
type connectionsParams struct {
	Addrs  []netip.Addr `json:"addrs"`
	Number uint64       `json:"number,omitempty"`
	From   int          `json:"from,omitempty"`
}

// Connections lists the guest's connections that have an end on one of addrs, part by
// part. Where it does not get them all (there are too many, the guest's program knows of
// no parts, or somebody else begins a list meanwhile), it says how many are omitted.
func (c *Client) Connections(ctx context.Context, addrs ...netip.Addr) (Connections, error) {
	ask := connectionsParams{Addrs: addrs}
	var all Connections
	for range mostParts {
		var part Connections
		if err := c.Call(ctx, ConnectionsMethod, ask, &part); err != nil {
			return all, err
		}
		if len(part.List) == 0 && ask.From > 0 {
			return all, nil // Omitted is what the part before said
		}
		room := min(len(part.List), ConnectionsMost-len(all.List))
		all.List = append(all.List, part.List[:room]...)
		all.Omitted = max(part.Omitted, 0) + len(part.List) - room
		if ask.Number, ask.From = part.Number, len(all.List); all.Omitted == 0 || part.Number == 0 || len(part.List) == 0 || ask.From == ConnectionsMost {
			return all, nil
		}
	}
	return all, fmt.Errorf("guest %s: its list comes in more than %d parts, and no guest needs so many", ConnectionsMethod, mostParts)
}
