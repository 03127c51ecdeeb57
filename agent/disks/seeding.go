package disks

import (
	"context"
	"fmt"
	"time"

	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
)

// beginMirror has QEMU copy one more disk. What those before have under way arrives first, which ends when nothing
// of it moves any more.
func (s *Source) beginMirror(ctx context.Context, mirror vm.Mirror) error {
	moving, cancel := context.WithCancel(ctx)
	defer cancel()
	still := make(chan bool, 1)
	go func() { still <- s.awaitStill(moving); cancel() }()
	err := s.Blocks.StartMirror(moving, mirror)
	cancel()
	switch stalled := <-still; {
	case err == nil:
		return nil
	case stalled:
		return s.problem(migration.CodePath,
			"nothing of its disks got to %s for %v; see whether the paths work", s.Plan.To, s.Patience)
	}
	if why := s.forward.Err(); why != nil {
		err = fmt.Errorf("%w (%w)", err, why)
	}
	return s.problem(migration.CodeHypervisor, "%v", err)
}

// awaitStill waits until nothing of the disks has moved for as long as patience lasts; false: ctx ended before.
func (s *Source) awaitStill(ctx context.Context) bool {
	idle := policy.Standstill{Patience: s.Patience}
	for tick := time.Tick(mirrorLook); ; {
		select {
		case <-ctx.Done():
			return false
		case now := <-tick:
			if idle.See(now, s.Carried()) {
				return true
			}
		}
	}
}

// seedLook is what the mirrors together say. Before one begins it looks through its disk, and knows of nothing to copy.
func seedLook(at time.Time, states []vm.MirrorState) policy.SeedLook {
	look := policy.SeedLook{At: at, Ready: true}
	for _, s := range states {
		look.Done, look.Remaining = look.Done+s.Done, look.Remaining+s.Remaining
		look.Ready = look.Ready && s.Ready
		look.Early = look.Early || !s.Ready && s.Done+s.Remaining == 0
	}
	return look
}
