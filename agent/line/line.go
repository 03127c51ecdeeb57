// Package line is how a guest on this host is asked: by whom its description says answers in it, over one connection
// that all who ask share, which is dialled when the first does, and again once it is gone. QEMU serves one client
// alone.
package line

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/vm/guest"
	"godwit/vm/guest/qga"
	"godwit/vm/qemu"
)

// ErrNone: nobody in the guest could be asked.
var ErrNone = errors.New("it has no guest channel")

// Line is that of one guest, for use by many. The zero value was not dialled yet.
type Line struct {
	dialling sync.Mutex // one client at a time

	mu       sync.Mutex
	open     guest.Channel
	stopDial context.CancelFunc // ends what dials, once there is a channel; nil: nothing dials
}

// Channel is the guest's channel as it was last reached, open or closed by now; nil while
// it was not.
func (l *Line) Channel() guest.Channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// SpeakBy has the guest be asked by c from now on, also by who is dialling: QEMU serves one client alone.
func (l *Line) SpeakBy(c guest.Channel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = c
	if l.stopDial != nil {
		l.stopDial()
	}
}

func (l *Line) dialsUntil(stop context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopDial = stop
}

// reached is the guest's channel as long as it is of use; nil: it is to be dialled.
func (l *Line) reached(d config.Description) guest.Channel {
	if c := l.Channel(); c != nil && (!Closed(c) || d.Silent()) {
		return c
	}
	return nil
}

// Reach is the open channel of a guest of that description, whose QEMU serves it at socket, which is called where it is
// to be dialled; "": at none. One that was never reached is dialled, as by an agent that found the guest paused; one
// that is closed is dialled again. A guest that does not answer costs wait; one that arrives is asked by the channel of
// its migration as soon as that is open.
func (l *Line) Reach(ctx context.Context, d config.Description, socket func() string, wait limits.Limit) (guest.Channel, error) {
	if c := l.reached(d); c != nil {
		return c, nil
	}
	l.dialling.Lock()
	defer l.dialling.Unlock()
	at := socket()
	if l.Channel() == nil && at == "" {
		return nil, ErrNone
	}
	ctx, cancel := wait.On(ctx)
	defer cancel()
	l.dialsUntil(cancel)
	defer l.dialsUntil(nil)
	if c := l.reached(d); c != nil { // by who dialled before us
		return c, nil
	}
	c, err := dialAgain(ctx, d, at)
	if err != nil {
		if other := l.reached(d); other != nil {
			return other, nil
		}
		return nil, limits.Says(ctx, err)
	}
	l.SpeakBy(c)
	return c, nil
}

// dialAgain dials until somebody answers, hanging up in between. What a guest says may not
// come out of QEMU before the present client has gone: a guest that writes at the moment in
// which a client breaks off leaves its port throttled, and only the next close ends that
// (hw/char/virtio-console.c, flush_buf, whose write closes the port before it throttles it).
func dialAgain(ctx context.Context, d config.Description, socket string) (guest.Channel, error) {
	for patience := limits.HangUp; ; patience.For *= 2 {
		try, cancel := patience.On(ctx)
		c, err := dial(try, d, socket)
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

// Closed says whether a channel's connection is gone: a request that a limit cuts off in
// the middle ends it.
func Closed(c guest.Channel) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// dial speaks to whoever answers in the guest. On error it returns no channel.
func dial(ctx context.Context, d config.Description, socket string) (guest.Channel, error) {
	if d.Agent == config.AgentQGA {
		return unlessFailed(qga.Dial(ctx, socket))
	}
	return unlessFailed(guest.Dial(ctx, socket))
}

// Open speaks to whoever will answer in a guest that is about to run: where it can, the channel is open before that. On
// error it returns none.
func Open(ctx context.Context, d config.Description, socket string) (guest.Channel, error) {
	if d.Agent == config.AgentQGA {
		return dial(ctx, d, socket)
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

// Port is the name of the virtio-serial port that a guest of our images has.
func Port(d config.Description) string {
	if d.Agent == config.AgentQGA {
		return qga.PortName
	}
	return qemu.GuestPort
}
