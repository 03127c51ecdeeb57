package qemu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/vm"
)

const (
	// cancelWait is how long a cancel may take before its sockets are yanked, and then
	// once more before we give up.
	cancelWait = 2 * time.Second
	// cleanLook is how often QEMU is asked whether it has cleaned up after a migration.
	cleanLook = 10 * time.Millisecond
	// cleanWait bounds that.
	cleanWait = 5 * time.Second
)

// CancelMigration ends an outgoing migration, by force when QEMU hangs on a dead socket:
// within about 5 seconds. On success none is under way, another can be started, and a
// guest that was paused by Stop is still paused; what it had set in QEMU is as before. The
// error is ErrCompleted when it was too late.
func (p *Process) CancelMigration(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*cancelWait+cleanWait)
	defer cancel()
	err := p.cancel(ctx)
	if err != nil && !errors.Is(err, ErrCompleted) {
		return fmt.Errorf("cancel migration: %w", err)
	}
	if cleaned := p.cleanedUp(ctx); cleaned == nil {
		p.putBack(ctx)
	} else if err == nil {
		err = cleaned
	}
	if err != nil {
		return fmt.Errorf("cancel migration: %w", err)
	}
	return nil
}

func (p *Process) cancel(ctx context.Context) error {
	// Both are tried in any case: QEMU's main loop may be blocked and answer neither the
	// question nor the cancel, while a yank is heard out of band.
	patient, stop := context.WithTimeout(ctx, cancelWait)
	asked := p.qmp.Do(patient, "migrate_cancel", nil, nil)
	status, err := p.over(patient)
	stop()
	if err != nil && p.Alive() {
		yank := map[string]any{"instances": []any{map[string]string{"type": "migration"}}}
		yanked := p.qmp.DoOOB(ctx, "yank", yank, nil) // refused where the migration is over: this host may have stood still, and QEMU not
		patient, stop = context.WithTimeout(ctx, cancelWait)
		if status, err = p.over(patient); err != nil {
			asked = errors.Join(asked, yanked)
		}
		stop()
	}
	if err != nil {
		return errors.Join(asked, err)
	}
	if status == vm.Completed {
		return ErrCompleted
	}
	return nil
}

// over waits until no migration is under way.
func (p *Process) over(ctx context.Context) (vm.MigrationStatus, error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	progress, err := p.until(ctx, p.qmp.Events(watching), vm.MigrationStatus.Ended)
	return progress.Status, err
}

// cleanedUp waits until QEMU has put away what the last migration used. The state says
// failed some time before that, and a new migration would meet the remains. They are
// gone when the migration is no longer among what can be yanked.
func (p *Process) cleanedUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWait)
	defer cancel()
	tick := time.NewTicker(cleanLook)
	defer tick.Stop()
	for {
		var instances []struct {
			Type string `json:"type"`
		}
		if err := p.qmp.Do(ctx, "query-yank", nil, &instances); err != nil {
			return err
		}
		busy := false
		for _, i := range instances {
			busy = busy || i.Type == "migration"
		}
		if !busy {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("a migration is still under way")
		}
	}
}
