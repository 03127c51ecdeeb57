package qemu

import (
	"context"
	"fmt"
	"time"

	"godwit/vm"
)

// The hold of QEMU before 8.1, which has no switchover-ack. Three things together:
//
//   - a downtime limit of 1 ms, so that a guest that writes is not switched over;
//   - a brake: when little is left of a later round and the guest writes little, the
//     bandwidth drops to a trickle once, so that some of the stream stays unsent until
//     ReleaseSwitchover (SetBandwidth lifts it too);
//   - a fence: pause-before-switchover. A guest too quiet for the other two is stopped by
//     QEMU there and not sent on. Stop then fails, because QEMU did the stopping; the
//     migration has to be cancelled, which lets the guest run again.
const (
	trickle   = 4096                   // bytes per second
	brakeLook = 50 * time.Millisecond  // between two looks at what is left
	brakeTime = 100 * time.Millisecond // of sending that may be left when the brake bites
	brakeSize = 1 << 20                // bytes that may be left in any case
)

// brake watches a migration until it bites, or the migration ends.
func (p *Process) brake() {
	ctx := context.Background()
	tick := time.NewTicker(brakeLook)
	defer tick.Stop()
	for range tick.C {
		progress, err := p.Progress(ctx)
		if err != nil || progress.Status.Ended() {
			return
		}
		left := max(brakeSize, progress.Throughput*int64(brakeTime)/int64(time.Second))
		quiet := progress.DirtyRate < left*int64(time.Second/brakeTime)
		if progress.Remaining > left || progress.Rounds < 2 || !quiet {
			continue
		}
		p.holding.Lock()
		if !p.released { // under the lock, so that a release comes after it
			p.qmp.Do(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": trickle}, nil)
		}
		p.holding.Unlock()
		return
	}
}

// ReleaseSwitchover ends a hold by low bandwidth: call it after Stop. It returns when QEMU
// has been told to send the device state. With switchover-ack the transfer holds, and
// there is nothing to do here.
func (p *Process) ReleaseSwitchover(ctx context.Context) error {
	p.holding.Lock()
	low := p.held == vm.HoldLowBandwidth
	p.released = true
	limit := p.limit
	p.holding.Unlock()
	if !low {
		return nil
	}
	params := map[string]any{"max-bandwidth": limit, "downtime-limit": longest.Milliseconds()}
	if err := p.qmp.Do(ctx, "migrate-set-parameters", params, nil); err != nil {
		return fmt.Errorf("release switchover: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	progress, err := p.until(ctx, p.qmp.Events(ctx), func(s vm.MigrationStatus) bool {
		return s == vm.PreSwitchover || s.Ended()
	})
	if err == nil && progress.Status != vm.PreSwitchover {
		err = ended(progress)
	}
	if err == nil {
		err = p.qmp.Do(ctx, "migrate-continue", map[string]any{"state": vm.PreSwitchover}, nil)
	}
	if err != nil {
		return fmt.Errorf("release switchover: %w", err)
	}
	return nil
}
