package agent

import (
	"context"
	"errors"
	"syscall"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/vm/guest"
	"godwit/vm/guest/qga"
	"godwit/vm/qemu"
)

// errNoChannel: nobody in the guest could be asked, see hasChannel.
var errNoChannel = errors.New("it has no guest channel")

// hasChannel says whether somebody in the guest could be asked, whether or not it answers.
func (g *Guest) hasChannel() bool {
	return g.channel() != nil || g.Machine != nil && g.Machine.GuestChannel() != ""
}

// channel is the guest's channel as it was last reached, open or closed by now; nil while
// it was not.
func (g *Guest) channel() guest.Channel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// speakBy has the guest be asked by c from now on, also by who is dialling: QEMU serves one client alone.
func (g *Guest) speakBy(c guest.Channel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = c
	if g.stopDial != nil {
		g.stopDial()
	}
}

// dialsUntil has what dials the guest's channel be ended by stop once there is a channel; nil: nothing dials.
func (g *Guest) dialsUntil(stop context.CancelFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopDial = stop
}

// reached is the guest's channel as long as it is of use; nil: it is to be dialled.
func (g *Guest) reached() guest.Channel {
	if c := g.channel(); c != nil && (!closed(c) || g.Held.Description.Silent()) {
		return c
	}
	return nil
}

// reach is the guest's open channel. One that was never reached is dialled, as by an agent
// that found the guest paused; one that is closed is dialled again. A guest that does not
// answer costs wait; one that arrives is asked by the channel of its migration as soon as that is open.
func (g *Guest) reach(ctx context.Context, wait limits.Limit) (guest.Channel, error) {
	if c := g.reached(); c != nil {
		return c, nil
	}
	g.dialling.Lock()
	defer g.dialling.Unlock()
	if !g.hasChannel() {
		return nil, errNoChannel
	}
	ctx, cancel := wait.On(ctx)
	defer cancel()
	g.dialsUntil(cancel)
	defer g.dialsUntil(nil)
	if c := g.reached(); c != nil { // by who dialled before us
		return c, nil
	}
	c, err := dialAgain(ctx, g.Held.Description, g.Machine.GuestChannel())
	if err != nil {
		if other := g.reached(); other != nil {
			return other, nil
		}
		return nil, limits.Says(ctx, err)
	}
	g.speakBy(c)
	return c, nil
}

// dialAgain dials until somebody answers, hanging up in between. What a guest says may not
// come out of QEMU before the present client has gone: a guest that writes at the moment in
// which a client breaks off leaves its port throttled, and only the next close ends that
// (hw/char/virtio-console.c, flush_buf, whose write closes the port before it throttles it).
func dialAgain(ctx context.Context, d config.Description, socket string) (guest.Channel, error) {
	for patience := limits.HangUp; ; patience.For *= 2 {
		try, cancel := patience.On(ctx)
		c, err := dialChannel(try, d, socket)
		if errors.Is(err, syscall.EAGAIN) { // those who hung up, and another client, are in front of us
			<-try.Done()
		}
		over := try.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !over {
			return c, err
		}
	}
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

// closed says whether a channel's connection is gone: a request that a limit cuts off in
// the middle ends it.
func closed(c guest.Channel) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// dialChannel speaks to whoever answers in the guest. On error it returns no channel.
func dialChannel(ctx context.Context, d config.Description, socket string) (guest.Channel, error) {
	if d.Agent == config.AgentQGA {
		return unlessFailed(qga.Dial(ctx, socket))
	}
	return unlessFailed(guest.Dial(ctx, socket))
}

// openChannel is dialChannel for a guest that is about to run, where it can be open before that.
func openChannel(ctx context.Context, d config.Description, socket string) (guest.Channel, error) {
	if d.Agent == config.AgentQGA {
		return dialChannel(ctx, d, socket)
	}
	return unlessFailed(guest.Open(ctx, socket))
}

// unlessFailed is c, and no channel at all with an error.
func unlessFailed[C guest.Channel](c C, err error) (guest.Channel, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// portOf is the name of the virtio-serial port that a guest of our images has.
func portOf(d config.Description) string {
	if d.Agent == config.AgentQGA {
		return qga.PortName
	}
	return qemu.GuestPort
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
