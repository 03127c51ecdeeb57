package guest

import (
	"context"
	"net/netip"
)

// CapTellAgain is the capability to tell clients of the next address later on.
const CapTellAgain = "tell_again"

// TellAgain is for connections that stay on an old address since their clients were out of reach as they were told of
// the next one (WhyAway). Those of them that were heard of lately are told once more, by an endpoint of its own, and
// waited for; who comes leaves its old addresses. The kernel tells all that the guest has: clients that follow already may
// make one more subflow each. Where one of them has two places there, or as many subflows as its kernel makes, or none was
// heard of, nobody is told, and Endpoints are none.
type TellAgain struct {
	AwaitJoin
	Away    []netip.AddrPort `json:"away"`     // the clients, as AwaitJoin names them
	SinceMS int64            `json:"since_ms"` // lately: within so long
}

// TellAgain returns when those that were told have come, or the limit has passed. Total are they alone. It needs
// CapTellAgain.
func (c *Client) TellAgain(ctx context.Context, p TellAgain) (Joins, error) {
	return c.joins(ctx, CapTellAgain, p)
}
