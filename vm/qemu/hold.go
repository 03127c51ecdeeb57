package qemu

import (
	"context"
	"fmt"
	"time"

	"godwit/vm"
)

// Every hold has a fence, pause-before-switchover (see Stop). From QEMU 8.1 on, switchover-ack
// keeps QEMU from coming there by itself. Before, two things more do:
//
//   - a downtime limit of 1 ms, so that a guest that writes is not switched over;
//   - a brake: when little is left of a later round and the guest writes little, the
//     bandwidth drops to a trickle once, so that some of the stream stays unsent until
//     ReleaseSwitchover (SetBandwidth lifts it too).
//
// A guest too quiet for those is stopped by QEMU at the fence and not sent on. Stop then
// fails, because QEMU did the stopping; the migration has to be cancelled, which lets the
// guest run again.
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
			_ = p.qmp.Do(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": trickle}, nil)
		}
		p.holding.Unlock()
		return
	}
}

// ReleaseSwitchover ends a hold by low bandwidth, or by pause-before-switchover: call it
// after Stop, and again if that may have been lost. It returns when QEMU has been told to
// look at memory for the last time and to send the device state.
func (p *Process) ReleaseSwitchover(ctx context.Context) error {
	p.holding.Lock()
	low, pauses, looks, told, known := p.held == vm.HoldLowBandwidth, p.pauses, p.looks, p.told, p.asked
	p.released = true
	limit := bandwidth(p.limit)
	atOnce := looks && (!p.keeps || limit == fastest)
	p.holding.Unlock()
	if !known { // the migration is older than this connection
		var err error
		if pauses, err = p.capable(ctx, "pause-before-switchover"); err != nil {
			return fmt.Errorf("release switchover: %w", err)
		}
		low = pauses && p.hold() == vm.HoldLowBandwidth
	}
	// The guest stands still: lookWhenSent is for one that writes.
	params := map[string]any{"downtime-limit": longest.Milliseconds()}
	if low {
		params["max-bandwidth"] = limit
	}
	if low || atOnce {
		if err := p.qmp.Do(ctx, "migrate-set-parameters", params, nil); err != nil {
			return fmt.Errorf("release switchover: %w", err)
		}
	}
	if looks && told != nil {
		told()
	}
	if !pauses {
		return nil
	}
	if err := p.passFence(ctx); err != nil {
		return fmt.Errorf("release switchover: %w", err)
	}
	return nil
}

// passFence waits until QEMU has come to pause-before-switchover, which takes as long as it
// has memory to send before, and sends it on.
func (p *Process) passFence(ctx context.Context) error {
	p.passing.Lock()
	defer p.passing.Unlock()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	progress, err := p.until(ctx, p.qmp.Events(watching), func(s vm.MigrationStatus) bool {
		return s == vm.PreSwitchover || s == vm.Device || s.Ended()
	})
	if err == nil && progress.Status == vm.PreSwitchover {
		return p.qmp.Do(ctx, "migrate-continue", map[string]any{"state": vm.PreSwitchover}, nil)
	}
	if err == nil && progress.Status != vm.Device && progress.Status != vm.Completed { // else sent on already
		err = ended(progress)
	}
	return err
}
