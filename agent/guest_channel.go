package agent

import (
	"context"

	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/vm/guest"
)

// errNoChannel: nobody in the guest could be asked, see hasChannel.
var errNoChannel = line.ErrNone

// hasChannel says whether somebody in the guest could be asked, whether or not it answers.
func (g *Guest) hasChannel() bool {
	return g.channel() != nil || g.channelSocket() != ""
}

// channel is the guest's channel as it was last reached, open or closed by now; nil while
// it was not.
func (g *Guest) channel() guest.Channel { return g.line.Channel() }

// speakBy has the guest be asked by c from now on, also by who is dialling.
func (g *Guest) speakBy(c guest.Channel) { g.line.SpeakBy(c) }

// reach is the guest's open channel, see line.Reach.
func (g *Guest) reach(ctx context.Context, wait limits.Limit) (guest.Channel, error) {
	return g.line.Reach(ctx, g.held().Description, g.channelSocket, wait)
}

// channelSocket is where the guest's QEMU serves its channel; "": nowhere.
func (g *Guest) channelSocket() string {
	if g.Machine == nil {
		return ""
	}
	return g.Machine.GuestChannel()
}

// info asks the guest what it is.
func (g *Guest) info(ctx context.Context) (guest.Info, error) {
	c, err := g.reach(ctx, limits.AskGuest)
	if err != nil {
		return guest.Info{}, err
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	info, err := c.Info(ctx)
	return info, limits.Says(ctx, err)
}

// stopTicks ends the counter of a guest that stays here.
func (a *Agent) stopTicks(g *Guest) {
	c := g.channel()
	if c == nil {
		return
	}
	if err := limits.EndTicks.Do(a.ctx, func(ctx context.Context) error { return c.Ticks(ctx, 0) }); err != nil {
		a.log.Info("end ticks", "guest", g.name(), "error", err)
	}
}
