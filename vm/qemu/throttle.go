package qemu

import (
	"context"
	"fmt"
)

// Throttling is QEMU's auto-converge, steered. By itself auto-converge holds what the guest
// wrote in a round against what QEMU wrote into its socket, and the proxy at the other end
// of that reads as it needs to: the comparison says nothing. But its parameters may be set
// while a migration runs (migration_trigger_throttle and mig_throttle_guest_down in QEMU's
// migration/ram.c): with a threshold of 1 % every second round of a guest that writes
// throttles, and where the first step and the most are the same number, to just that.
//
// The capability itself cannot be set while a migration runs, so it is on from the beginning
// and held down: to 1 %, and that only where a round wrote more than it sent.
//
// QEMU ends it in migration_iteration_finish, which every migration comes to that completes,
// fails or is cancelled.
//
// Its other means, set-vcpu-dirty-limit, wants KVM with a dirty ring, which is an option of
// QEMU's start ("dirty page limit feature requires KVM with accelerator property
// 'dirty-ring-size' set", QEMU 10.0.2).
const (
	leastThrottle = 1  // percent, QEMU's least
	mostThrottle  = 99 // and its most
)

// throttle returns the arguments of migrate-set-parameters that throttle to percent, where
// now, or else keep QEMU from more than that by itself.
func throttle(percent int, now bool) map[string]any {
	threshold := 100 // of what was sent, percent
	if now {
		threshold = 1
	}
	return map[string]any{
		"throttle-trigger-threshold": threshold,
		"cpu-throttle-initial":       percent,
		"max-cpu-throttle":           percent,
		"cpu-throttle-increment":     mostThrottle, // up to the most at once
		"cpu-throttle-tailslow":      false,
	}
}

// Throttle sets how far the guest is throttled that a migration sends; see vm.Machine. On
// error it is throttled as before, or not at all.
func (p *Process) Throttle(ctx context.Context, percent int) error {
	if percent < leastThrottle || percent > mostThrottle {
		return fmt.Errorf("throttle guest to %d %%: not %d to %d", percent, leastThrottle, mostThrottle)
	}
	able, err := p.capable(ctx, "auto-converge")
	if err == nil && !able {
		return fmt.Errorf("throttle guest to %d %%: no migration under way may throttle it", percent)
	}
	if err == nil {
		err = p.qmp.Do(ctx, "migrate-set-parameters", throttle(percent, true), nil)
	}
	if err != nil {
		return fmt.Errorf("throttle guest to %d %%: %w", percent, err)
	}
	return nil
}
