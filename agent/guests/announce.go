package guests

import (
	"context"
	"errors"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/netstate"
)

// Announce tells the guest's LAN that it is on this host. Bridges have learnt where its NICs were, and neighbours who
// had its addresses before: guests do not say that they have them, and ours are not asked to (vm.Facts.Quiet).
func (g *Guest) Announce(ctx context.Context, c *config.Config) error {
	m := g.Machine()
	if m == nil {
		return nil
	}
	err := limits.Announce.Do(ctx, m.Announce)
	h := g.Held()
	for _, addr := range h.Addresses {
		if addr.Home == c.Host {
			err = errors.Join(err, netstate.Announce(c.Network.Bridge, addr.Prefix.Addr(), h.Description.NICs[h.Active].Hardware()))
		}
	}
	return err
}
