package qemu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/internal/oneline"
	"godwit/vm"
)

// look is how often a state is asked for that an event should have told; events can be
// lost by a slow reader.
const look = 500 * time.Millisecond

// Progress asks QEMU how far the migration is. While QEMU sends its last pages it may not
// answer until it has.
func (p *Process) Progress(ctx context.Context) (vm.Progress, error) {
	var q struct {
		Status vm.MigrationStatus `json:"status"`
		RAM    struct {
			Transferred int64   `json:"transferred"`
			Remaining   int64   `json:"remaining"`
			Total       int64   `json:"total"`
			DirtyPages  int64   `json:"dirty-pages-rate"`
			PageSize    int64   `json:"page-size"`
			Syncs       int64   `json:"dirty-sync-count"`
			MBPS        float64 `json:"mbps"` // megabits per second
		} `json:"ram"`
		Downtime int64  `json:"downtime"` // milliseconds
		Throttle int    `json:"cpu-throttle-percentage"`
		Error    string `json:"error-desc"`
	}
	if err := p.qmp.Do(ctx, "query-migrate", nil, &q); err != nil {
		return vm.Progress{}, err
	}
	if q.Status == "" {
		q.Status = vm.MigrationNone
	}
	return vm.Progress{
		Status: vm.MigrationStatus(oneline.Of(string(q.Status))), Error: oneline.Of(q.Error),
		Total: q.RAM.Total, Remaining: q.RAM.Remaining, Transferred: q.RAM.Transferred,
		DirtyRate: q.RAM.DirtyPages * q.RAM.PageSize, Rounds: q.RAM.Syncs,
		Throughput: int64(q.RAM.MBPS * 1e6 / 8), Throttled: q.Throttle,
		Downtime: time.Duration(q.Downtime) * time.Millisecond,
	}, nil
}

// AwaitMigration waits for the end of the migration that is under way or to come, until
// ctx ends or the process does. The error is nil when it completed: at the source the guest
// is in postmigrate then, at the destination it is loaded and paused. After a failure the
// source's run state is what it was.
func (p *Process) AwaitMigration(ctx context.Context) (vm.Progress, error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	events := p.qmp.Events(watching)
	progress, err := p.until(ctx, events, func(s vm.MigrationStatus) bool {
		return s == vm.Completed || s == vm.Failed || s == vm.Cancelled
	})
	if err != nil {
		return progress, err
	}
	if err := p.handedBack(ctx); err != nil {
		return progress, err
	}
	return progress, ended(progress)
}

// handedBack waits until QEMU's migration thread has set the guest's final run state,
// which happens some microseconds after it has told how the migration ended.
func (p *Process) handedBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWait)
	defer cancel()
	tick := time.NewTicker(cleanLook)
	defer tick.Stop()
	for {
		status, err := p.Status(ctx)
		if err != nil || status != vm.FinishMigrate {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("guest is still %s: %w", status, ctx.Err())
		}
	}
}

// ended turns the end of a migration into an error, unless it completed.
func ended(p vm.Progress) error {
	switch {
	case p.Status == vm.Completed:
		return nil
	case p.Error != "":
		return fmt.Errorf("migration %s: %s", p.Status, p.Error)
	default:
		return fmt.Errorf("migration %s", p.Status)
	}
}

// until waits for a state. It looks, then waits for an event or for time to look again.
func (p *Process) until(ctx context.Context, events <-chan vm.Event, is func(vm.MigrationStatus) bool) (vm.Progress, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		progress, err := p.Progress(ctx)
		if err != nil {
			return progress, err
		}
		if is(progress.Status) {
			return progress, nil
		}
		for again := false; !again; {
			select {
			case e, ok := <-events:
				if !ok {
					if ctx.Err() != nil {
						return progress, fmt.Errorf("migration is %s: %w", progress.Status, ctx.Err())
					}
					return progress, errors.New("QEMU is gone")
				}
				again = e.Name == "MIGRATION"
			case <-tick.C:
				again = true
			case <-ctx.Done():
				return progress, fmt.Errorf("migration is %s: %w", progress.Status, ctx.Err())
			}
		}
	}
}
