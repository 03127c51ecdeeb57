package disks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"godwit/agent/limits"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/transfer/pipe"
	"godwit/vm"
)

const (
	mirrorLook = 100 * time.Millisecond // at mirrors, while disks are seeded or memory is copied
	tellEvery  = 200 * time.Millisecond // how far they are
	// syncGrace is added to the downtime budget for what disks may take to be in sync
	// when the guest is stopped. Past it the migration is undone.
	syncGrace = time.Second
)

// ask has the waiting QEMU grant every disk. The guest's own QEMU
// would stand still for that, and the guest with it: see package nbd.
func (s *Source) ask(ctx context.Context) (map[string]transfer.Disk, error) {
	ctx, cancel := limits.AskDisks.On(ctx)
	defer cancel()
	granted := make([]transfer.Disk, len(s.Disks))
	s.ways = make([]*pipe.Source, len(s.Disks))
	var all errgroup.Group
	for n, d := range s.Disks {
		all.Go(func() error {
			var err error
			if s.ways[n], err = s.open(n); err == nil {
				granted[n], err = askDisk(ctx, s.ways[n], d.ID)
			}
			return err
		})
	}
	err := all.Wait()
	out := map[string]transfer.Disk{}
	for n, d := range granted {
		if d.Conn != nil && err != nil {
			d.Conn.Close()
		}
		out[s.Disks[n].ID] = d
	}
	if err != nil {
		return nil, s.problem(migration.CodePath, "%s does not grant its disks: %v", s.Plan.To, limits.Says(ctx, err))
	}
	return out, nil
}

// Await follows the mirrors until each disk was copied once and what the guest writes follows. It has no time limit,
// but ends when nothing moves any more. events are those of QEMU; told hears now and then how much is there, and how
// much is left, bytes.
func (s *Source) Await(ctx context.Context, events <-chan vm.Event, told func(done, left int64)) error {
	ticker := time.NewTicker(mirrorLook)
	defer ticker.Stop()
	last := time.Time{}
	for {
		states, err := s.look(ctx)
		if err != nil {
			return err
		}
		all := seedLook(time.Now(), states)
		if all.Ready || time.Since(last) > tellEvery {
			last = time.Now()
			told(all.Done, all.Remaining)
		}
		if all.Ready {
			return nil
		}
		for again := false; !again; {
			select {
			case e, ok := <-events:
				if !ok {
					events = nil
				}
				again = e.Name == "BLOCK_JOB_READY" || e.Name == "BLOCK_JOB_ERROR"
			case <-ticker.C:
				again = true
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// look asks how far the mirrors are, and helps one that does not follow.
func (s *Source) look(ctx context.Context) ([]vm.MirrorState, error) {
	states, err := s.Blocks.Mirrors(ctx)
	if err != nil {
		return nil, err
	}
	if len(states) != len(s.Disks) {
		return nil, s.broke("a disk", "its mirror is gone")
	}
	for _, m := range states {
		if m.Ended {
			return nil, s.broke(m.Disk, m.Error)
		}
	}
	look := seedLook(time.Now(), states)
	s.at, s.left = look.At, look.Remaining
	verdict := s.seeding.See(look)
	if verdict != policy.SeedBlock {
		s.refused = time.Time{}
	}
	switch verdict {
	case policy.SeedStalled:
		return nil, s.problem(migration.CodePath,
			"nothing of its disks got to %s for %v, with %d MiB to go; see whether the paths work", s.Plan.To, s.Patience, look.Remaining>>20)
	case policy.SeedBlock:
		err = s.blockWrites(ctx, states, look)
	}
	return states, err
}

// blockWrites lets the guest's writes wait for the copy, because it writes faster than the copy follows. A QEMU that
// cannot, as before 8.2 (block-job-change), is given time to follow all the same, and then told of: nothing else would
// ever end this. A disk that is in sync has no part in it. Where each disk was copied once, what is left may fit the
// pause all the same.
func (s *Source) blockWrites(ctx context.Context, states []vm.MirrorState, look policy.SeedLook) error {
	var errs []error
	for _, m := range states {
		if s.blocked[m.Disk] || m.Ready && m.Remaining == 0 {
			continue
		}
		if err := s.Blocks.BlockWrites(ctx, m.Disk); err != nil {
			errs = append(errs, err)
			continue
		}
		if s.blocked == nil {
			s.blocked = map[string]bool{}
		}
		s.blocked[m.Disk] = true
		s.Note(fmt.Sprintf("the guest writes to its disk %s faster than the copy follows: its writes wait for the copy now", m.Disk))
	}
	switch err := errors.Join(errs...); {
	case err == nil, look.Ready:
		s.refused = time.Time{}
	case s.refused.IsZero():
		s.refused = look.At
	case look.At.Sub(s.refused) > s.Patience:
		return s.problem(migration.CodeHypervisor,
			"it writes to its disk faster than the copy follows, and its QEMU does not let its writes wait (8.2 and newer do): %s; lower what it writes, or give the migration more bandwidth", oneline.Of(err.Error()))
	}
	return nil
}

func (s *Source) broke(disk, why string) error {
	if err := s.forward.Err(); err != nil {
		why += "; " + err.Error()
	}
	return s.problem(codeOf(why), "the copy of %s to %s broke: %s", disk, s.Plan.To, why)
}

// codeOf is the code of what QEMU says of a copy. Where it has no room, that is at the destination, to whose disk all
// is written.
func codeOf(why string) migration.Code {
	if strings.Contains(strings.ToLower(why), unix.ENOSPC.Error()) {
		return migration.CodeCapacity
	}
	return migration.CodeHypervisor
}

// Left is what of the disks is not at the destination while memory is copied, bytes.
func (s *Source) Left(ctx context.Context) (int64, error) {
	if s == nil {
		return 0, nil
	}
	if time.Since(s.at) > mirrorLook {
		if _, err := s.look(ctx); err != nil {
			return 0, err
		}
	}
	return s.left, nil
}

// Finish brings the disks of the stopped guest in sync, for good, within the downtime budget and a second. It comes before
// the release, so that any failure is undone: nothing of QEMU waits for a dead path then (Cut), and the guest may run on.
func (s *Source) Finish(ctx context.Context) error {
	for _, way := range s.ways {
		way.Hurry(s.left)
	}
	limit := limits.Limit{Name: "disks_in_sync", For: s.Plan.Downtime + syncGrace}
	if err := limit.Do(ctx, s.Blocks.FinishMirrors); err != nil {
		s.Cut()
		return s.problem(codeOf(err.Error()), "its disks did not get in sync with %s: %v", s.Plan.To, err)
	}
	return nil
}
