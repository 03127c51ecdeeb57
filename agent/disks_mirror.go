package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/transfer/nbd"
	"godwit/transfer/pipe"
	"godwit/vm"
)

// mirrors are a source's disks on their way, from seed to switch.
type mirrors struct {
	blocks  vm.Blocks
	forward *transfer.Plain
	ways    []*pipe.Source         // below it, one a disk
	sent    map[string]*nbd.Digest // of read-only disks
	seeding policy.Seeding
	blocked map[string]bool // disks to which the guest's writes wait for the copy from now on
	refused time.Time       // since when QEMU does not let them wait, and the copy does not follow; 0: it does
	at      time.Time
	left    int64 // bytes that differed at the last look
	speed   goodput
}

func (w *mirrors) close() {
	if w != nil && w.forward != nil {
		w.forward.Close() //nolint:errcheck // it has no error
	}
}

// cutMirrors takes the disks' ways from QEMU, which is done at once. The farewells on these ways, most of a second where
// nobody answers, are not waited for: the guest stands still.
func (m *outgoing) cutMirrors() { m.work.farewells.Go(m.work.mirrors.close) }

// carried is what the disks' streams have carried towards the destination, bytes.
func (w *mirrors) carried() int64 { return w.forward.Stats().Forward }

const (
	mirrorLook = 100 * time.Millisecond // at mirrors, while disks are seeded or memory is copied
	// syncGrace is added to the downtime budget for what disks may take to be in sync
	// when the guest is stopped. Past it the migration is undone.
	syncGrace = time.Second
)

// seedDisks copies the disks of the running guest, until each was copied once and what
// the guest writes follows. It has no time limit, but ends when nothing moves any more.
func (m *outgoing) seedDisks(ctx context.Context) error {
	if len(m.guest.Held.Description.Disks) > 0 {
		if err := m.beginMirrors(ctx); err != nil {
			return err
		}
		if err := m.awaitSeeded(ctx); err != nil {
			return err
		}
		if err := m.compareCopied(ctx); err != nil {
			return err
		}
		m.flushDisks(ctx)
	}
	m.rec.Event(migration.DiskSeeded)
	return nil
}

// beginMirrors opens the way and has QEMU copy every disk.
func (m *outgoing) beginMirrors(ctx context.Context) error {
	g := m.guest
	blocks, err := blocksOf(g.Machine)
	if err != nil {
		return err
	}
	paths, err := m.requirePaths()
	if err != nil {
		return err
	}
	m.beginWire()
	disks, ways, err := m.askDisks(ctx, paths)
	if err != nil {
		return err
	}
	sent := m.hearDisks(disks)
	socket := filepath.Join(g.Held.Dir, "disks-out.sock")
	forward, err := transfer.ListenNBD(m.a.ctx, socket, disks)
	if err != nil {
		return err
	}
	m.work.share.Follow(func() int64 { return forward.Stats().Forward })
	m.work.mirrors = &mirrors{blocks: blocks, forward: forward, ways: ways, sent: sent, seeding: policy.Seeding{Patience: m.a.config.Patience}}
	for _, d := range g.Held.Description.Disks {
		if err := m.beginMirror(ctx, vm.Mirror{Disk: d.ID, Socket: socket}); err != nil {
			return err
		}
	}
	return nil
}

// askDisks has the waiting QEMU grant every disk. The guest's own QEMU
// would stand still for that, and the guest with it: see package nbd.
func (m *outgoing) askDisks(ctx context.Context, paths []peer.Path) (map[string]transfer.Disk, []*pipe.Source, error) {
	ctx, cancel := limits.AskDisks.On(ctx)
	defer cancel()
	disks := m.guest.Held.Description.Disks
	granted, ways, limit := make([]transfer.Disk, len(disks)), make([]*pipe.Source, len(disks)), m.bandwidth.Share()
	var all errgroup.Group
	for n, d := range disks {
		all.Go(func() error {
			var err error
			if ways[n], err = m.openDisk(paths, n, len(disks), limit); err == nil {
				granted[n], err = askDisk(ctx, ways[n], d.ID)
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
		out[disks[n].ID] = d
	}
	if err != nil {
		return nil, nil, m.problem(migration.CodePath, "%s does not grant its disks: %v", m.plan.To, limits.Says(ctx, err))
	}
	return out, ways, nil
}

// awaitSeeded follows the mirrors until all are ready.
func (m *outgoing) awaitSeeded(ctx context.Context) error {
	events := m.guest.Machine.Events(ctx)
	ticker := time.NewTicker(mirrorLook)
	defer ticker.Stop()
	told := time.Time{}
	for {
		states, err := m.lookAtMirrors(ctx)
		if err != nil {
			return err
		}
		ready := true
		for _, s := range states {
			ready = ready && s.Ready
		}
		if ready || time.Since(told) > progressEvery {
			told = time.Now()
			m.progress(m.seedProgress(states))
			m.keepWire()
		}
		if ready {
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

// lookAtMirrors asks how far the mirrors are, and helps one that does not follow.
func (m *outgoing) lookAtMirrors(ctx context.Context) ([]vm.MirrorState, error) {
	w := m.work.mirrors
	states, err := w.blocks.Mirrors(ctx)
	if err != nil {
		return nil, err
	}
	if len(states) != len(m.guest.Held.Description.Disks) {
		return nil, m.mirrorBroke("a disk", "its mirror is gone")
	}
	for _, s := range states {
		if s.Ended {
			return nil, m.mirrorBroke(s.Disk, s.Error)
		}
	}
	look := seedLook(time.Now(), states)
	w.at, w.left = look.At, look.Remaining
	verdict := w.seeding.See(look)
	if verdict != policy.SeedBlock {
		w.refused = time.Time{}
	}
	switch verdict {
	case policy.SeedStalled:
		return nil, m.problem(migration.CodePath,
			"nothing of its disks got to %s for %v, with %d MiB to go; see whether the paths work", m.plan.To, m.a.config.Patience, look.Remaining>>20)
	case policy.SeedBlock:
		err = m.blockWrites(ctx, states, look)
	}
	return states, err
}

// blockWrites lets the guest's writes wait for the copy, because it writes faster than
// the copy follows. A QEMU that cannot, as before 8.2 (block-job-change), is given time to follow all the same, and then
// told of: nothing else would ever end this. Where each disk was copied once, what is left may fit the pause all the same.
func (m *outgoing) blockWrites(ctx context.Context, states []vm.MirrorState, look policy.SeedLook) error {
	w := m.work.mirrors
	var errs []error
	for _, s := range states {
		if w.blocked[s.Disk] {
			continue
		}
		if err := w.blocks.BlockWrites(ctx, s.Disk); err != nil {
			errs = append(errs, err)
			continue
		}
		if w.blocked == nil {
			w.blocked = map[string]bool{}
		}
		w.blocked[s.Disk] = true
		m.rec.Note(fmt.Sprintf("the guest writes to its disk %s faster than the copy follows: its writes wait for the copy now", s.Disk))
	}
	switch err := errors.Join(errs...); {
	case err == nil, look.Ready:
		w.refused = time.Time{}
	case w.refused.IsZero():
		w.refused = look.At
	case look.At.Sub(w.refused) > m.a.config.Patience:
		return m.problem(migration.CodeHypervisor,
			"it writes to its disk faster than the copy follows, and its QEMU does not let its writes wait (8.2 and newer do): %s; lower what it writes, or give the migration more bandwidth", oneline.Of(err.Error()))
	}
	return nil
}

func (m *outgoing) mirrorBroke(disk, why string) error {
	if err := m.work.mirrors.forward.Err(); err != nil {
		why += "; " + err.Error()
	}
	return m.problem(migration.CodeHypervisor, "the copy of %s to %s broke: %s", disk, m.plan.To, why)
}

func (m *outgoing) seedProgress(states []vm.MirrorState) record.CopyProgress {
	out := record.CopyProgress{What: record.CopyOfDisk, Wire: m.wireSince()}
	for _, s := range states {
		out.Total, out.Remaining = out.Total+s.Done+s.Remaining, out.Remaining+s.Remaining
	}
	w := m.work.mirrors
	out.Sent = w.carried()
	if out.Rate = w.speed.see(time.Now(), out.Total-out.Remaining); out.Rate > 0 {
		out.LeftS = float64(out.Remaining) / float64(out.Rate)
	}
	return out
}

// diskLeft is what of the disks is not at the destination while memory is copied, bytes.
func (m *outgoing) diskLeft(ctx context.Context) (int64, error) {
	w := m.work.mirrors
	if w == nil {
		return 0, nil
	}
	if time.Since(w.at) > mirrorLook {
		if _, err := m.lookAtMirrors(ctx); err != nil {
			return 0, err
		}
	}
	return w.left, nil
}

// diskRate is what the best of the paths carries, which takes the last of disks, bytes per second, at most the migration's
// limit; all is what all paths carry together, 0 where neither is known.
func (m *outgoing) diskRate(paths []peer.Path, all int64) (rate int64) {
	for _, p := range paths {
		rate = max(rate, p.Rate/8)
	}
	if rate == 0 {
		rate = all
	}
	if most := m.bandwidth.Bytes(); most > 0 && rate > 0 {
		rate = min(rate, most)
	}
	return rate
}

// finishDisks brings the disks of the stopped guest in sync, for good. It comes before
// the release, so that any failure is undone here.
func (m *outgoing) finishDisks(ctx context.Context) error {
	w := m.work.mirrors
	if w == nil {
		return nil
	}
	for _, way := range w.ways {
		way.Hurry(w.left)
	}
	m.bandwidth.KeepApart(0) // QEMU does not heed its limit either when it comes to its end
	limit := limits.Limit{Name: "disks_in_sync", For: m.plan.Downtime + syncGrace}
	if err := m.rec.Timed(record.StepDisks, func() error { return limit.Do(ctx, w.blocks.FinishMirrors) }); err != nil {
		m.cutMirrors() // nothing of QEMU may wait for a dead path: the guest is to run on
		return m.problem(migration.CodeHypervisor, "its disks did not get in sync with %s: %v", m.plan.To, err)
	}
	m.rec.Edit(func(r *record.Report) { r.DiskBytes = w.carried() })
	return nil
}

// undoSeed ends all mirrors, also those that an earlier agent began. The disks here are
// as if there had been none; what the destination has of them it removes.
func (m *outgoing) undoSeed(ctx context.Context) error {
	if w := m.work.mirrors; w != nil {
		m.countWire()
		m.countDisks(w.carried())
		w.close() // first: a job that waits for a dead path could not be cancelled
		m.work.mirrors = nil
	}
	if len(m.guest.Held.Description.Disks) == 0 || !m.guest.alive() {
		return nil
	}
	blocks, err := blocksOf(m.guest.Machine)
	if err != nil {
		return nil //nolint:nilerr // then there are no mirrors
	}
	return blocks.DropMirrors(ctx)
}

// countDisks notes what the disks' streams have taken. Where a stream broke some of it waits in the kernel and
// never left: it is no more than what did, where that was counted.
func (m *outgoing) countDisks(carried int64) {
	m.rec.Edit(func(r *record.Report) {
		var left int64
		for _, bytes := range r.WireBytes {
			left += bytes
		}
		if r.DiskBytes = carried; left > 0 {
			r.DiskBytes = min(carried, left)
		}
	})
}
