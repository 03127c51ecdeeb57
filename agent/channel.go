package agent

import (
	"context"
	"time"

	"godwit/vm/guest"
	"godwit/vm/guest/qga"
	"godwit/vm/qemu"
)

// Who answers on a guest's channel (Description.Agent).
const (
	helperAgent = "godwit" // our helper: the first process of tiny, or godwit-guest
	qgaAgent    = "qga"    // the QEMU guest agent
)

// channelWait bounds how long a guest may take to answer on its channel after boot.
const channelWait = 3 * time.Minute

// connectChannel dials the guest's channel and waits for its answer.
func connectChannel(ctx context.Context, d Description, socket string, wait time.Duration) (guest.Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return dialChannel(ctx, d, socket)
}

// dialChannel speaks to whoever answers in the guest. On error it returns no channel.
func dialChannel(ctx context.Context, d Description, socket string) (guest.Channel, error) {
	if d.Agent == qgaAgent {
		c, err := qga.Dial(ctx, socket)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	c, err := guest.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// port is the name of the virtio-serial port that a guest of our images has.
func (d Description) port() string {
	if d.Agent == qgaAgent {
		return qga.PortName
	}
	return qemu.GuestPort
}
