package agent

import (
	"context"
	"fmt"

	"godwit/internal/clock"
	"godwit/netstate/tunnel"
)

// A host that reboots loses its tunnels and what leads to them. The guests that it had are
// gone, and what led to them goes. But guests that live elsewhere may still be reached
// through it, at addresses that it is the home of: that is made again, by detours.json.

// restoreDetours makes leased detours stand again, after a reboot of this host. What stands
// is left as it is.
func (a *Agent) restoreDetours(ctx context.Context) {
	for _, d := range a.detours.list("") {
		over := !d.Until.IsZero() && clock.Now().After(d.Until)
		if _, err := a.guests.find(d.Guest); err == nil || a.guests.readable(d.Guest) != nil || !d.Leased || over {
			continue
		}
		if err := a.restoreDetour(ctx, d.ID); err != nil {
			a.log.Warn("restore detour", "id", d.ID, "guest", d.Guest, "error", err)
		}
	}
}

// restoreDetour makes one detour stand again, without the taps of a guest that is not here.
// Its tunnel has the keys and ends that it had, so the other end need not know.
func (a *Agent) restoreDetour(ctx context.Context, id string) error {
	d, ok := a.detours.get(id)
	if !ok || len(d.Away) == 0 {
		return nil // nobody is reached through it
	}
	if _, err := tunnel.Attach(ctx, d.Tunnel.Dir, d.Tunnel.Name); err == nil {
		return nil
	}
	config := d.Tunnel
	config.Lease = clock.Now().Add(2 * leaseTime)
	up, cancel := limitRestore.on(ctx)
	defer cancel()
	if _, err := tunnel.Up(up, config); err != nil {
		return fmt.Errorf("restore: %w", says(up, err))
	}
	a.log.Info("tunnel stands again, as this host had lost it", "id", id, "guest", d.Guest, "to", d.Peer)
	err := a.detours.change(d.Guest, func(all map[string]*detour) {
		if d, ok := all[id]; ok {
			d.Tunnel, d.Taps = config, nil
			for i := range d.Away {
				d.Away[i].Tap = ""
			}
		}
	})
	if err == nil {
		a.announce(id)
	}
	return err
}
