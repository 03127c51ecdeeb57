package agent

import (
	"cmp"
	"context"
	"fmt"

	"godwit/agent/record"
	"godwit/policy"
	"godwit/vm"
)

// Mode `precopy` forbids that memory follows the guest. What it may do with a guest that
// writes faster than the paths carry, where that was asked for, is to throttle it
// (policy.Throttling decides, QEMU performs it). It ends with QEMU's migration, in which it lives: when that completes,
// fails, is cancelled, or is broken off by our end. Where QEMU's connection does not pass
// through this agent, the next one cancels what it finds (undoCopy).

// throttle has the guest throttled, or further, where policy says so. copying is how it goes. How
// far a step goes is by QEMU's count, of a page once in each of its rounds: it goes further where these are short.
func (m *outgoing) throttle(ctx context.Context, copying *policy.Copying, look policy.Look, p vm.Progress) error {
	if m.work.throttling.Most == 0 {
		return nil
	}
	counted := p.DirtyRate
	if m.work.throttling.Asked() == 0 { // a long round counts a page once that was written ten times
		counted = max(counted, m.work.dirtyRate)
	}
	told := look
	look.DirtyRate, told.DirtyRate = m.asSent(counted), m.asSent(cmp.Or(look.DirtyRate, m.work.dirtyRate))
	percent, more := m.work.throttling.See(look, copying.Gains() || copying.Fits(), p.Throttled)
	if !more {
		return nil
	}
	if err := m.guest.Machine().Throttle(ctx, percent); err != nil {
		return err
	}
	why := fmt.Sprintf("after %.1f s it %s as they are sent, the paths carry %.1f MB/s, and %.1f MB are left: the downtime budget of %v is not met by copying on",
		look.At.Seconds(), m.writes(told), float64(look.Goodput)/1e6, float64(look.Remaining)/1e6, m.plan.Downtime)
	m.rec.Note(fmt.Sprintf("throttled: the guest's processors are to stand still for %d %% of the time, in pauses of %v: %s",
		percent, policy.Pause(percent, vm.ThrottleRuns), why))
	m.rec.Edit(func(r *record.Report) {
		if r.Throttled == nil {
			r.Throttled = &record.Throttled{Why: why, At: m.rec.Now()}
		}
		r.Throttled.Percent = percent
	})
	return nil
}

// throttleWords say what a copy that is given up has tried of this.
func (m *outgoing) throttleWords() string {
	switch t := m.work.throttling; {
	case t.Asked() > 0:
		return fmt.Sprintf(", though it was throttled to stand still for %d %% of the time", t.Asked())
	case m.plan.Throttle > 0 && t.Most == 0:
		return ", and throttling it is forbidden here (throttle_most)"
	}
	return ""
}
