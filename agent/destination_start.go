package agent

import (
	"context"
	"errors"
	"fmt"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
)

// start lets the guest run here: it was let go, and every byte is here.
func (m *incoming) start(ctx context.Context) error {
	g := m.work.guest
	m.countHeld()
	watching, stop := context.WithCancel(m.a.ctx)
	defer stop()
	events := g.Machine().Events(watching)
	err := m.letRun(ctx)
	if err != nil && m.runsOnceFed(ctx) {
		err = nil
		m.work.started.Store(true)
	}
	if err != nil && !g.Alive() && resumed(events) {
		m.work.started.Store(true) // whatever becomes of the migration: it wrote to its disks
		return fmt.Errorf("guest %s ran on %s, and its QEMU is gone: %w", m.plan.Guest, m.plan.To, errVanished)
	}
	if err != nil && m.a.ctx.Err() != nil {
		return err // the agent stops, and the next one asks QEMU
	}
	if err != nil && !m.ranAnyway() {
		// Refused: the source takes the guest back, so it must never run here.
		err = errors.Join(err, g.Machine().Quit(context.WithoutCancel(ctx)))
		if resumed(events) {
			m.work.started.Store(true)
			return fmt.Errorf("guest %s ran on %s before it was ended: %w: %w", m.plan.Guest, m.plan.To, err, errVanished)
		}
		return err
	}
	m.work.started.Store(true) // or it was started, and its QEMU did not say so
	now := m.rec.Now()
	m.rec.Edit(func(r *record.Report) { r.Resumed = now })
	m.rec.Add(record.Event{Kind: "event", Name: migration.TargetResume, At: now})
	m.takeGuest()
	if err := m.a.guests.Save(g); err != nil {
		m.a.log.Error("keep guest", "guest", g.Name(), "error", err)
	}
	return nil
}

// letRun has QEMU run the guest, which has some seconds for it.
func (m *incoming) letRun(ctx context.Context) error {
	ctx, cancel := limits.Start.On(ctx)
	defer cancel()
	err := m.endExports(ctx)
	m.mu.Lock()
	ready := m.readyAt
	m.mu.Unlock()
	m.rec.Took("hand over: count what is held, end the disks' exports", ready)
	if err == nil {
		err = m.compareMemory(ctx)
	}
	if err == nil {
		err = m.rec.Timed(record.StepStart, func() error { return m.work.guest.Machine().Cont(ctx) })
		m.work.started.Store(err == nil)
	}
	return limits.Says(ctx, err)
}

// ranAnyway says whether the guest runs, or did, although starting it gave an error: it may
// have met a full disk, or sleep.
func (m *incoming) ranAnyway() bool {
	ctx, cancel := limits.Status.On(m.a.ctx)
	defer cancel()
	status, err := m.work.guest.Machine().Status(ctx)
	return err == nil && !neverRan(status)
}

// countHeld notes how many packets wait for the guest.
func (m *incoming) countHeld() {
	if m.work.queue == nil {
		return
	}
	if waiting, _, err := m.work.queue.Frames(); err == nil {
		held := int64(waiting) //nolint:gosec // a queue's length
		m.rec.Edit(func(r *record.Report) { r.Held = &held })
	}
}
