package topo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
)

// settleTime bounds how long the kernel may take to bring devices into service.
const settleTime = 5 * time.Second

// settle returns when every raised veth of the node is in service. Up to then, which is
// a little after both ends are raised, the kernel drops what it should send, and the
// first lost neighbour request costs a second.
func (n *node) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		device, err := n.unsettled()
		if err != nil {
			return fmt.Errorf("look at devices of %s: %w", n.name, err)
		}
		if device == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("raise %s in %s: it does not come into service: %w", device, n.name, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// unsettled names a device that is raised but not in service, or none.
func (n *node) unsettled() (string, error) {
	links, err := n.handle.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return "some device", nil
	}
	if err != nil {
		return "", err
	}
	for _, link := range links {
		attrs := link.Attrs()
		if link.Type() == "veth" && attrs.Flags&net.FlagUp != 0 && attrs.OperState != netlink.OperUp {
			return attrs.Name, nil
		}
	}
	return "", nil
}

// settleAll is settle for several nodes, one after the other.
func settleAll(ctx context.Context, nodes ...*node) error {
	for _, n := range nodes {
		if err := n.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}
