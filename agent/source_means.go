package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"godwit/agent/capable"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
)

// This file settles what mode `auto` means: pre-copy for a guest that writes less than the
// paths carry, and hybrid for one that does not, which pre-copy would follow for ever. Where
// pre-copy was asked for, how much the guest writes foretells whether it will be throttled.

// A guest's writing is measured beside the rest of the check: by a short look, and where that
// does not tell enough, by one that is long enough to see what is written again and again.
const (
	dirtyFor   = time.Second
	dirtyFirst = 400 * time.Millisecond
)

// measureWriting begins to measure how much memory the guest rewrites, where that
// decides something; settleMode takes the answer.
func (m *outgoing) measureWriting() {
	if m.plan.Mode != "auto" && m.a.config.MostThrottle(m.plan) == 0 {
		return
	}
	answer := make(chan int64, 1)
	m.work.dirtyRates = answer
	n, _ := m.a.config.Peer(m.plan.To)
	carried, machine, quick := m.carried(n)/8, m.guest.Machine(), m.plan.Mode == "auto"
	go func() {
		ctx, cancel := limits.DirtyRate.On(m.a.ctx)
		defer cancel()
		rate, err := writing(ctx, machine, quick, carried)
		if err != nil {
			m.a.log.Info("how much the guest writes is not known", "migration", m.plan.ID, "error", limits.Says(ctx, err))
			rate = 0
		}
		answer <- rate
	}()
}

// dirtyRater is what writing needs of a vm.Machine.
type dirtyRater interface {
	DirtyRate(ctx context.Context, over time.Duration) (int64, error)
}

// writing is how much memory the guest rewrites, bytes per second; quick: no more than has to
// be known to say whether paths that carry so many (0: unknown) are enough.
func writing(ctx context.Context, machine dirtyRater, quick bool, carried int64) (int64, error) {
	if quick {
		begun := time.Now()
		rate, err := machine.DirtyRate(ctx, dirtyFirst)
		if err != nil || policy.Calm(rate, carried) || time.Since(begun) >= dirtyFor { // it can only measure by the second
			return rate, err
		}
	}
	return machine.DirtyRate(ctx, dirtyFor)
}

// settleMode chooses between pre-copy and hybrid, by the rate of the paths that the
// migration may use (bits per second, 0: unknown), where nobody has.
func (m *outgoing) settleMode(ctx context.Context, pathRate int64) error {
	if m.work.dirtyRates == nil { // an agent that was started again goes on here
		m.measureWriting()
	}
	auto := m.plan.Mode == "auto"
	if auto {
		m.plan.Mode = "precopy"
	}
	if m.work.dirtyRates == nil || auto && !m.plan.OwnPath() { // no other has hybrid: there is nothing to wait for
		m.rec.Edit(func(r *record.Report) { r.Mode = m.plan.Mode })
		return nil
	}
	select {
	case m.work.dirtyRate = <-m.work.dirtyRates:
	case <-ctx.Done():
		return ctx.Err()
	}
	if carried := pathRate / 8; auto && !policy.Converges(m.work.dirtyRate, carried) {
		why := fmt.Sprintf("the guest rewrites %.1f MB/s, the paths carry %.1f MB/s", float64(m.work.dirtyRate)/1e6, float64(carried)/1e6)
		if cannot := capable.CannotFollow(m.work.facts); cannot != "" {
			m.rec.Note(fmt.Sprintf("mode precopy, though %s: %s (mode hybrid)", why, cannot))
		} else {
			m.plan.Mode, m.work.chosen = "hybrid", true
			m.rec.Note("mode hybrid: " + why)
		}
	}
	m.work.mayFollow = auto && m.plan.Mode == "precopy" && capable.CannotFollow(m.work.facts) == ""
	m.rec.Edit(func(r *record.Report) { r.Mode = m.plan.Mode })
	return nil
}

// turnsHybrid says whether a migration that cannot go on begins again with mode hybrid, which then is the mode of its
// next try: its copy, which goes on at the flip where no lane works (copyOn), does not meet the budget, as it was not
// foreseen, and nobody asked for it to.
func (m *outgoing) turnsHybrid(why *migration.Problem) bool {
	copies := m.state.Phase() == migration.Copy || m.state.Reached() == migration.Flip
	if !m.work.mayFollow || why.Code != migration.CodeBudget || m.state.Course != migration.Forward || !copies {
		return false
	}
	m.nextMode = "hybrid"
	return true
}

// whyTurned is why a migration does not go on; one that begins again is not advised what it does.
func (m *outgoing) whyTurned(s migration.Source) string {
	if s.Again {
		return strings.TrimSuffix(s.Problem.Text, "; "+m.cures())
	}
	return s.Problem.Text
}

// cures are what helps where the budget cannot be met.
func (m *outgoing) cures() string {
	switch {
	case m.plan.Mode == "hybrid" || m.plan.Mode == "postcopy":
		return "allow a longer --downtime, or lower its load"
	case capable.CannotFollow(m.work.facts) != "" || m.opaque():
		return "allow a longer --downtime, lower its load, or let it be throttled (--throttle)"
	}
	how := "--mode hybrid"
	if !m.plan.OwnPath() { // QEMU's own have no such mode
		how += " --transfer lanes"
	}
	return fmt.Sprintf("allow a longer --downtime, lower its load, let it be throttled (--throttle), or let the rest follow the guest (%s)", how)
}
