package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/limits"
	"godwit/internal/clock"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// A host that reboots loses its tunnels and what leads to them. The guests that it had are
// gone, and what led to them goes. But guests that live elsewhere may still be reached
// through it, at addresses that it is the home of: that is made again, by detours.json. So is,
// at any time and at either end, a tunnel whose process has ended, where a lease keeps it or its guest is reached by it.

// restoreDetours makes leased detours stand again, after a reboot of this host. What stands
// is left as it is.
func (a *Agent) restoreDetours(ctx context.Context) {
	for _, d := range a.detours.List("") {
		over := !d.Until.IsZero() && clock.Now().After(d.Until)
		if _, err := a.guests.Find(d.Guest); err == nil || a.guests.Readable(d.Guest) != nil || !d.Leased || over {
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
	d, ok := a.detours.Get(id)
	if !ok || len(d.Away)+len(d.Leaving) == 0 {
		return nil // nobody is reached through it
	}
	if _, err := tunnel.Attach(ctx, d.Tunnel.Dir, d.Tunnel.Name); err == nil {
		return nil
	}
	err := a.raiseAgain(ctx, d, func(d *detour.Detour) {
		d.Taps = nil
		for i := range d.Away {
			d.Away[i].Tap = ""
		}
	})
	if err == nil {
		a.announce(id)
	}
	return err
}

// restoreTunnel brings a detour's tunnel up again that has gone with its process, or that the kernel carries on
// without one. Before its guest is reached by it the migration turns back instead.
func (a *Agent) restoreTunnel(ctx context.Context, id string) error {
	d, ok := a.detours.Get(id)
	over := !d.Until.IsZero() && clock.Now().After(d.Until)
	if !ok || !d.Leased && !reaches(d) || over || len(d.Addresses()) == 0 {
		return nil
	}
	if tunnel.Exists(d.Tunnel.Name) && !tunnel.Orphaned(ctx, d.Tunnel.Dir, d.Tunnel.Name) {
		return nil
	}
	if err := a.raiseAgain(ctx, d, func(*detour.Detour) {}); err != nil {
		return err
	}
	if d, ok = a.detours.Get(id); !ok {
		return nil
	}
	a.actors.Go(func() { // else the other end may go on with keys that this one does not have
		ctx, cancel := limits.Restore.On(ctx)
		defer cancel()
		if err := echo(ctx, d.Tunnel); err != nil {
			a.log.Warn("restored tunnel", "id", id, "error", limits.Says(ctx, err))
		}
	})
	return nil
}

// reaches says whether packets of its guest take d's tunnel now: the guest was led away, or runs here with what it came
// with.
func reaches(d detour.Detour) bool {
	return slices.ContainsFunc(d.Away, func(a netstate.Away) bool { return a.Active }) ||
		slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return !v.Waits && !v.AtHome() })
}

// raiseAgain brings d's tunnel up and what it leads into it, as edit changes it. One that ended
// meanwhile stays away, and one that was made anew is left as it is.
func (a *Agent) raiseAgain(ctx context.Context, d detour.Detour, edit func(*detour.Detour)) error {
	a.making.Lock()
	defer a.making.Unlock()
	if !a.has(d) {
		return nil
	}
	err := a.raise(ctx, d, edit)
	if err == nil {
		a.log.Info("tunnel stands again, as this host had lost it or its process", "id", d.ID, "guest", d.Guest, "to", d.Peer)
	}
	return err
}

// has says whether d has not ended since, and its tunnel was not made anew, or led elsewhere.
func (a *Agent) has(d detour.Detour) bool {
	now, ok := a.detours.Get(d.ID)
	return ok && now.Tunnel.PeerKey == d.Tunnel.PeerKey && now.Tunnel.Local == d.Tunnel.Local && now.Tunnel.Remote == d.Tunnel.Remote
}

// raise is raiseAgain of who holds a.making, for a d that is.
func (a *Agent) raise(ctx context.Context, d detour.Detour, edit func(*detour.Detour)) error {
	again := d.Tunnel
	again.Lease = ends.Lease()
	up, cancel := limits.Restore.On(ctx)
	defer cancel()
	if _, err := tunnel.Up(up, again); err != nil {
		return fmt.Errorf("restore: %w", limits.Says(up, err))
	}
	ended := false
	err := a.detours.ChangeNow(d.Guest, func(all map[string]*detour.Detour) {
		now, ok := all[d.ID]
		if ended = !ok; ok {
			now.Tunnel = again
			edit(now)
		}
	})
	if ended {
		err = errors.Join(err, detour.DropTunnel(ctx, again.Dir, again.Name))
	}
	return err
}
