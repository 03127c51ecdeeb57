package agent

import (
	"context"
	"fmt"
	"time"

	"godwit/policy"
)

// This file settles what mode `auto` means: pre-copy for a guest that writes less than the
// paths carry, and hybrid for one that does not, which pre-copy would follow for ever. Where
// pre-copy was asked for, how much the guest writes foretells whether it will be throttled.

// dirtyFor is for how long a guest's writing is measured, beside the rest of the check.
const dirtyFor = time.Second

// measureWriting begins to measure how much memory the guest rewrites, where that
// decides something; settleMode takes the answer.
func (m *outgoing) measureWriting() {
	if m.plan.Mode != "auto" && m.a.config.mostThrottle(m.plan) == 0 {
		return
	}
	answer := make(chan int64, 1)
	m.work.writes = answer
	machine := m.guest.Machine
	go func() {
		ctx, cancel := limitDirtyRate.on(m.a.ctx)
		defer cancel()
		rate, err := machine.DirtyRate(ctx, dirtyFor)
		if err != nil {
			m.a.log.Info("how much the guest writes is not known", "migration", m.plan.ID, "error", says(ctx, err))
			rate = 0
		}
		answer <- rate
	}()
}

// settleMode chooses between pre-copy and hybrid, by the rate of the paths that the
// migration may use (bits per second, 0: unknown), where nobody has.
func (m *outgoing) settleMode(ctx context.Context, pathRate int64) error {
	if m.work.writes == nil { // an agent that was started again goes on here
		m.measureWriting()
	}
	auto := m.plan.Mode == "auto"
	if auto {
		m.plan.Mode = "precopy"
	}
	if m.work.writes == nil || auto && !ownPath(m.plan) { // no other has hybrid: there is nothing to wait for
		m.rec.edit(func(r *Report) { r.Mode = m.plan.Mode })
		return nil
	}
	select {
	case m.work.dirty = <-m.work.writes:
	case <-ctx.Done():
		return ctx.Err()
	}
	if carried := pathRate / 8; auto && !policy.Converges(m.work.dirty, carried) {
		m.plan.Mode, m.work.chosen = "hybrid", true
		m.rec.note(fmt.Sprintf("mode hybrid: the guest rewrites %.1f MB/s, the paths carry %.1f MB/s", float64(m.work.dirty)/1e6, float64(carried)/1e6))
	}
	m.rec.edit(func(r *Report) { r.Mode = m.plan.Mode })
	return nil
}
