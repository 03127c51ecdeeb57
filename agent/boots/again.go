package boots

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/vm/guest"
)

// asHanded says whether the guest has, as far as can be seen, what a handover leaves: its addresses on its active NIC,
// and nothing else on either that it must not have here.
func (k *Keeper) asHanded(h care.Held, info guest.Info) bool {
	active, spare := k.strays(h, info)
	has := handed.AddressesOf(info, h.Description.NICs[h.Active])
	return len(active)+len(spare) == 0 && len(lists.Without(migration.Bare(h.Addresses), has)) == 0
}

// strays are the addresses that a guest has on its NICs by its own configuration alone. On the active one those of this
// site's subnet, and of a family of which it has none, are its own affair, unless another guest here has them.
func (k *Keeper) strays(h care.Held, info guest.Info) (active, spare []netip.Addr) {
	taken, own := k.Taken(), migration.Bare(h.Addresses)
	active = lists.Without(handed.AddressesOf(info, h.Description.NICs[h.Active]), own)
	active = slices.DeleteFunc(active, func(addr netip.Addr) bool {
		owner, has := taken[addr]
		subnet := k.Config.Network.SubnetOf(addr)
		return (!subnet.IsValid() || subnet.Contains(addr)) && (!has || owner == h.Description.Name)
	})
	return active, lists.Without(handed.AddressesOf(info, h.Description.NICs[1-h.Active]), own)
}

// errMoves says that a migration has the guest.
var errMoves = errors.New("a migration of it is under way")

// giveAgain gives a guest that has booted anew what its last handover gave it, by the same steps: its addresses with their
// routes and endpoints on the active NIC, those that it keeps moved there, its spare NIC down. Done twice, it is
// done once. A migration that is asked for meanwhile waits.
func (k *Keeper) giveAgain(ctx context.Context, g *guests.Guest, info guest.Info) error {
	g.LockAddresses()
	defer g.UnlockAddresses()
	h := g.Held()
	given, _ := h.Handed()
	if g.Migration() != "" || k.Coming(g.Name()) || len(given) == 0 {
		return errMoves
	}
	life := ctx
	ctx, cancel := limits.GiveAgain.On(ctx)
	defer cancel()
	c, err := g.Reach(ctx, limits.AskGuest)
	if err != nil {
		return err
	}
	made, err := c.Configure(ctx, handed.Configure(h, k.Config.Network, h.Active, given, h.Table, true))
	if err != nil {
		return fmt.Errorf("set its address: %w", limits.Says(ctx, err))
	}
	if err := k.announcedAgain(g, made.EndpointIDs); err != nil {
		return err
	}
	if err := k.retireAgain(ctx, c, h, info); err != nil {
		return fmt.Errorf("take away what it has by its own configuration: %w", limits.Says(ctx, err))
	}
	if err := g.Announce(life, k.Config); err != nil {
		k.Log.Info("its LAN was not told where it is", "guest", g.Name(), "error", err)
	}
	return nil
}

// retireAgain takes from the guest what it has by its own configuration, and has it keep what is kept.
func (k *Keeper) retireAgain(ctx context.Context, c guest.Channel, h care.Held, info guest.Info) error {
	strays, old := k.strays(h, info)
	given, kept := h.Handed()
	nics := h.Description.NICs
	retire := guest.Retire{MAC: nics[1-h.Active].MAC, NewMAC: nics[h.Active].MAC}
	if len(old) > 0 {
		retire.Addrs, retire.Stay = old, len(kept) > 0
		if err := c.Retire(ctx, retire); err != nil {
			return err
		}
	}
	if len(kept) > 0 { // last, as the NIC may stay up for them
		retire.Addrs, retire.Stay, retire.Keep = migration.Bare(kept), false, true
		handed.SentBy(&retire, kept, given)
		if err := c.Retire(ctx, retire); err != nil {
			return err
		}
	}
	if len(strays) == 0 {
		return nil
	}
	return c.DropAddress(ctx, strays...)
}

// announcedAgain keeps the endpoint ids by which the guest announces its addresses, where they are others than before. Later ones follow
// them: the guest takes later ones than it was to, or has begun again with the first.
func (k *Keeper) announcedAgain(g *guests.Guest, ids []uint8) error {
	changed := false
	g.Remember(func(h *care.Held) {
		for i := range h.Addresses {
			addr := &h.Addresses[i]
			for _, id := range ids {
				if id != 0 && addr.Handover != "" && addr.Endpoint != 0 && addr.Endpoint != id && addr.Prefix.Addr().Is4() == (id%2 == 1) {
					if h.Endpoint = max(h.Endpoint, id); id < addr.Endpoint {
						h.Endpoint = id
					}
					addr.Endpoint, changed = id, true
				}
			}
		}
	})
	if !changed {
		return nil
	}
	return k.Guests.SaveIfHere(g)
}
