package topo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
)

// The kernel's own bounds, per connection and per namespace (net/mptcp/protocol.h).
const (
	maxSubflows  = 8
	maxEndpoints = 8
)

// setLimits lets the client's sockets take what the spec says. It comes before any of
// them: each takes its copy when it is made.
func setLimits(n *node, c Client) error {
	if c.MPTCP == "off" {
		return nil
	}
	err := netns.Do(n.namespace, func() error {
		return mptcp.SetLimits(maxSubflows, uint32(c.AddAddrAccepted))
	})
	if err != nil {
		return fmt.Errorf("set up client %s: %w", c.Name, err)
	}
	return nil
}

// addEndpoints tells the client's path manager which addresses it may use besides that
// of a connection's first subflow: with one uplink none, until it moves, and by a single path none at all.
func addEndpoints(n *node, c *client) error {
	if c.spec.Uplinks == 1 || c.spec.MPTCP == "single" || c.spec.MPTCP == "off" {
		return nil
	}
	return c.endpoints(n, 0, c.used())
}

// endpoints adds an endpoint for every present address of c's uplinks from one to before another. fullmesh, for without it
// the kernel aims new subflows at the peer's initial address, which may be dead.
func (c *client) endpoints(n *node, from, before int) error {
	err := netns.Do(n.namespace, func() error {
		for j := from; j < before; j++ {
			flags := mptcp.FlagSubflow | mptcp.FlagFullmesh
			if c.spec.MPTCP == "backup" && j > 0 {
				flags |= mptcp.FlagBackup
			}
			for _, addr := range []netip.Addr{c.addrs[j], c.addrsV6[j]} {
				if err := mptcp.AddEndpoint(mptcp.Endpoint{Addr: addr, Dev: ownDevice(j), Flags: flags}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set up client %s: %w", c.spec.Name, err)
	}
	return nil
}

// used is how many of its uplinks c's connections use: by a single path the first alone (Teka's single-path mode).
func (c *client) used() int {
	if c.spec.MPTCP == "single" {
		return 1
	}
	return len(c.addrs)
}

// followTime bounds how long the old addresses are kept for connections that have no
// subflow on a new one yet: a withdrawal travels on a subflow that works.
const followTime = 2 * time.Second

// follow makes the client's connections use its present addresses and leave the old, of which it had old and oldV6 by
// its uplinks. Where there is no room for all of them, those of its first uplink stay until then, and new ones wait:
// fullmesh aims at what has a subflow, and with none left at the peer's initial address alone.
func follow(ctx context.Context, n *node, c *client, old, oldV6 []netip.Addr) error {
	if c.spec.MPTCP == "off" {
		return nil
	}
	all, first := append(slices.Clone(old), oldV6...), c.used()
	if len(all)+2*first > maxEndpoints {
		if err := withdraw(n, append(slices.Clone(old[1:]), oldV6[1:]...), false); err != nil {
			return err
		}
		first = min(first, (maxEndpoints-2)/2)
	}
	if err := c.endpoints(n, 0, first); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	for !joined(n, append(slices.Clone(c.addrs), c.addrsV6...)) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.Join(withdraw(n, all, true), c.endpoints(n, first, c.used()))
}

// joined says if every MPTCP connection of the node has a working subflow on one of the
// addresses: one whose last acknowledgement has come (RFC 8684 §3.2). Before, the kernel sends
// nothing by it, and words of addresses that are gone go out by those, and are lost.
func joined(n *node, addrs []netip.Addr) bool {
	all := true
	err := netns.Do(n.namespace, func() error {
		connections, err := mptcp.Connections()
		for _, connection := range connections {
			all = all && (connection.Fallback || slices.ContainsFunc(connection.Subflows, func(s mptcp.Subflow) bool {
				return s.FullyEstablished && s.State == mptcp.StateEstablished && slices.Contains(addrs, s.Local.Addr())
			}))
		}
		return err
	})
	return err == nil && all
}

// withdraw takes old addresses from the path manager: those that are endpoints, and,
// where first is set, those that connections began on, which have the id 0.
func withdraw(n *node, old []netip.Addr, first bool) error {
	return netns.Do(n.namespace, func() error {
		known, err := mptcp.Endpoints()
		if err != nil {
			return err
		}
		var errs []error
		for _, e := range known {
			if slices.Contains(old, e.Addr) {
				errs = append(errs, mptcp.DelEndpoint(e.ID, e.Addr))
			}
		}
		for _, addr := range old {
			if first {
				errs = append(errs, mptcp.DelEndpoint(0, addr))
			}
		}
		return errors.Join(errs...)
	})
}
