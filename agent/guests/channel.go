package guests

import (
	"context"

	"godwit/agent/limits"
	"godwit/vm/guest"
)

// HasChannel says whether somebody in the guest could be asked, whether or not it answers.
func (g *Guest) HasChannel() bool {
	return g.Channel() != nil || g.channelSocket() != ""
}

// Channel is the guest's channel as it was last reached, open or closed by now; nil while
// it was not.
func (g *Guest) Channel() guest.Channel { return g.line.Channel() }

// SpeakBy has the guest be asked by c from now on, also by who is dialling.
func (g *Guest) SpeakBy(c guest.Channel) { g.line.SpeakBy(c) }

// Reach is the guest's open channel, see line.Reach.
func (g *Guest) Reach(ctx context.Context, wait limits.Limit) (guest.Channel, error) {
	return g.line.Reach(ctx, g.Held().Description, g.channelSocket, wait)
}

// channelSocket is where the guest's QEMU serves its channel; "": nowhere.
func (g *Guest) channelSocket() string {
	m := g.Machine()
	if m == nil {
		return ""
	}
	return m.GuestChannel()
}

// Info asks the guest what it is.
func (g *Guest) Info(ctx context.Context) (guest.Info, error) {
	c, err := g.Reach(ctx, limits.AskGuest)
	if err != nil {
		return guest.Info{}, err
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	info, err := c.Info(ctx)
	return info, limits.Says(ctx, err)
}
