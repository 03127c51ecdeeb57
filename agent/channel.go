package agent

import (
	"context"

	"godwit/vm/guest"
	"godwit/vm/guest/qga"
	"godwit/vm/qemu"
)

// Who answers on a guest's channel (Description.Agent).
const (
	helperAgent = "godwit" // our helper: the first process of tiny, or godwit-guest
	qgaAgent    = "qga"    // the QEMU guest agent
	dhcpAgent   = "dhcp"   // nobody: its address is given to a DHCP client; see outside
)

// silent says that nobody in the guest can be asked.
func (d Description) silent() bool { return d.Agent == dhcpAgent }

// connectChannel dials the guest's channel and waits for its answer.
func connectChannel(ctx context.Context, d Description, socket string, wait limit) (guest.Channel, error) {
	ctx, cancel := wait.on(ctx)
	defer cancel()
	c, err := dialChannel(ctx, d, socket)
	return c, says(ctx, err)
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
