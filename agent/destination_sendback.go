package agent

import (
	"context"
	"errors"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate/hold"
	"godwit/netstate/tunnel"
)

// This file undoes what was made for a guest that was refused here, and sends packets that waited for it back to its source.

// sendHeldBack returns when the packets that waited in g's taps are at the source, as far as that can be known within
// limits: an echo through the same tunnel comes behind them. The answer to it comes behind what was still on its way
// here, which then goes back as well. Where this host is the home, and leads the guest's address here still, it leads
// it away first: else more would come. What waits where the source had led nothing here came to an address that the
// guest has not: nobody is there for it. Nor is it for what came to a next address, of which the guest may have told
// its clients.
func (m *incoming) sendHeldBack(ctx context.Context, g *guests.Guest, d detour.Detour) error {
	if m.ledNothing() {
		return m.a.sendAway(ctx, m.plan.ID)
	}
	frames, err := m.heldBack(g)
	if !m.goesBack(ctx, frames) {
		return m.a.sendAway(ctx, m.plan.ID)
	}
	err = errors.Join(err, m.a.sendAway(ctx, m.plan.ID))
	ctx, cancel := limits.SentBack.On(ctx)
	defer cancel()
	for {
		more, rerr := m.heldBack(g)
		err = errors.Join(err, rerr)
		if frames = append(frames, more...); len(frames) == 0 {
			return err
		}
		sent, serr := hold.Resend(frames, d.Tunnel.Name)
		if err = errors.Join(err, serr); sent == 0 {
			return err
		}
		m.a.log.Info("held packets went back", "migration", m.plan.ID, "packets", sent)
		if eerr := echo(ctx, d.Tunnel); eerr != nil {
			m.a.log.Warn("whether they have arrived is not known", "migration", m.plan.ID, "error", eerr)
			return err
		}
		frames = nil
	}
}

// ledNothing says whether the source is known to have led no packet here.
func (m *incoming) ledNothing() bool { return m.unled.Load() && !m.snapshot().Released }

// goesBack says whether what waits here goes back. A source that may have led it here is awaited first: it says then
// whether it had.
func (m *incoming) goesBack(ctx context.Context, frames [][]byte) bool {
	if m.snapshot().Released || hold.Unicast(frames) {
		m.awaitTurnedBack(ctx)
	}
	return !m.ledNothing()
}

// awaitTurnedBack waits until the source leads the guest's packets to itself again, and says so in
// its abort. Until then it would return what is sent to it. What refused the guest here it hears
// as soon as that is final.
func (m *incoming) awaitTurnedBack(ctx context.Context) {
	ctx, cancel := limits.ToldBack.On(ctx)
	defer cancel()
	_, err := m.await(ctx, func(migration.Destination) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.back
	})
	if err != nil {
		m.a.log.Warn("held packets are sent back unasked", "migration", m.plan.ID, "error", limits.Says(ctx, err))
	}
}

// echo returns when one has been through the tunnel and back.
func echo(ctx context.Context, through tunnel.Config) error {
	t, err := tunnel.Attach(ctx, through.Dir, through.Name)
	if err == nil {
		err = t.Verify(ctx)
	}
	return limits.Says(ctx, err)
}

// heldBack is what waits for the guest at the addresses that it has at its source.
func (m *incoming) heldBack(g *guests.Guest) ([][]byte, error) {
	frames, err := readTaps(g)
	return hold.Without(frames, lists.Without(migration.Bare(m.plan.Next), migration.Bare(m.plan.Held))), err
}

// readTaps reads what waits in a guest's taps that are left.
func readTaps(g *guests.Guest) (frames [][]byte, err error) {
	for _, t := range g.Taps() {
		if t == nil {
			continue // it went with its host or its QEMU
		}
		more, rerr := hold.ReadLeft(t)
		frames, err = append(frames, more...), errors.Join(err, rerr)
	}
	return frames, err
}

// sendBack undoes everything here. Packets that waited for the guest go back to
// where it runs.
func (m *incoming) sendBack(ctx context.Context) error {
	m.work.stop()
	g, ran := m.work.guest, m.ran.Load() || m.work.started.Load()
	var err error
	if g != nil {
		quit := func() {
			if g.Machine() != nil {
				err = errors.Join(err, g.Machine().Quit(ctx))
			}
		}
		if ran { // else it reads no packet, and its end takes as long as its memory is large
			quit()
		}
		if d, ok := m.a.detours.Get(m.plan.ID); ok {
			err = errors.Join(err, m.sendHeldBack(ctx, g, d))
		}
		if !ran {
			quit()
		}
		m.a.discard(g)
	}
	switch {
	case g == nil: // nothing was made, and a guest of that name may have such disks here
	case ran:
		err = errors.Join(err, m.setDisksAside(), m.forgetGivenUp())
	default:
		err = errors.Join(err, m.dropDisks())
	}
	err = errors.Join(err, m.a.sendAway(ctx, m.plan.ID), m.removeDetour(ctx), m.endDirect(ctx))
	if m.a.ownName(m.plan.ID) != nil {
		return err // another has a tunnel of that name, and this one was refused for it
	}
	return errors.Join(err, detour.DropTunnel(ctx, ends.Dir(m.a.config), ends.Name(m.plan.ID)))
}

// removeDetour takes the guest's detour away. The kernel leads to the guest before the disk has the detour: of an agent
// that was killed between the two it does so by none, and is made equal to what there is.
func (m *incoming) removeDetour(ctx context.Context) error {
	if _, ok := m.a.detours.Get(m.plan.ID); !ok && m.work.found {
		return m.a.detours.Follow(m.plan.Guest)
	}
	return m.a.detours.Remove(ctx, m.plan.ID)
}
