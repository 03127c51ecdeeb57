package guest

import (
	"context"
	"net/netip"
)

// CapTellAgain is the capability to tell clients of the next address later on.
const CapTellAgain = "tell_again"

// TellAgain is for connections that stay on an old address since their clients were out of reach as they were told of
// the next one (WhyAway). Those of them that were heard of lately are told once more, by endpoints of their own, and
// waited for; who comes leaves its old addresses. Where none was heard of, nobody is told. The kernel tells all that the
// guest has: clients that follow already may make one more subflow each, so it is not for every moment.
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
