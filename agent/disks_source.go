package agent

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/agent/disks"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/agent/ways"
	"godwit/migration"
	"godwit/vm"
)

// isReadOnly says whether a guest that was told of has a disk read-only.
func isReadOnly(facts vm.Facts, id string) bool {
	return slices.ContainsFunc(facts.Disks, func(d vm.Disk) bool { return d.ID == id && d.ReadOnly })
}

// takesDisks refuses a guest with disks where the destination's agent is of an earlier release: one from before disks
// came by lanes answers none of theirs, and would have QEMU serve read-only ones.
func (m *outgoing) takesDisks() error {
	var ids []string
	for _, d := range m.work.facts.Disks {
		ids = append(ids, d.ID)
	}
	if len(ids) == 0 || m.work.accepted.ReadOnly {
		return nil
	}
	return refuses(m.plan.To, m.work.offer, migration.CodePeer, "its agent is of an earlier release, and takes disks (%s) in otherwise than they are sent; bring it to the release of %s", strings.Join(ids, ", "), m.plan.From)
}

// seedDisks copies the disks of the running guest, until each was copied once and what
// the guest writes follows.
func (m *outgoing) seedDisks(ctx context.Context) error {
	if len(m.guest.Held().Description.Disks) > 0 {
		if err := m.beginMirrors(ctx); err != nil {
			return err
		}
		told := func(done, left int64) {
			m.progress(m.seedProgress(done, left))
			m.keepWire()
		}
		if err := m.work.mirrors.Await(ctx, m.guest.Machine().Events(ctx), told); err != nil {
			return m.disksEnded(ctx, m.work.mirrors, err)
		}
		if err := m.compareCopied(ctx); err != nil {
			return err
		}
		m.work.mirrors.Flush(ctx)
	}
	m.rec.Event(migration.DiskSeeded)
	return nil
}

// beginMirrors opens the ways and has QEMU copy every disk.
func (m *outgoing) beginMirrors(ctx context.Context) error {
	g := m.guest
	blocks, err := blocksOf(g.Machine())
	if err != nil {
		return err
	}
	all, err := m.requirePaths()
	if err != nil {
		return err
	}
	m.beginWire()
	leaving := slices.Clone(g.Held().Description.Disks)
	for n := range leaving {
		leaving[n].ReadOnly = isReadOnly(m.work.facts, leaving[n].ID)
	}
	source, err := disks.Open(ctx, disks.Config{
		Life: m.a.ctx, Plan: m.plan, Disks: leaving, Blocks: blocks, Socket: filepath.Join(g.Held().Dir, "disks-out.sock"),
		Link: m.link, Paths: all, Key: m.work.laneKey, Limit: m.bandwidth.Share(), Patience: m.a.config.Patience,
		Note: m.rec.Note, Log: m.a.log, Farewells: &m.work.farewells,
	})
	if err != nil {
		return m.disksGivenUp(ctx, err)
	}
	m.work.wire.Follow(source.Carried)
	m.work.mirrors = source
	return m.disksEnded(ctx, source, source.Begin(ctx))
}

// disksEnded explains err, for which a copy of disks by ways does not go on: where one has ended since the destination
// gave the guest up, that is the reason, and not what QEMU saw of it.
func (m *outgoing) disksEnded(ctx context.Context, ways interface{ Err() error }, err error) error {
	if err == nil || ways.Err() == nil {
		return err
	}
	return m.disksGivenUp(ctx, err)
}

// disksGivenUp explains err, for which disks are not copied, or no further: the destination's reason goes before it,
// where that has given the guest up.
func (m *outgoing) disksGivenUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	given := m.givenUpThere(ctx)
	if given == nil {
		return err
	}
	return m.problem(given.Code, "%s has given it up: %s; here: %s", m.plan.To, given.Text, strings.TrimPrefix(err.Error(), "migrate guest "+m.plan.Guest+": "))
}

// seedProgress is what watchers see of disks of which so many bytes are there, and so many left.
func (m *outgoing) seedProgress(done, left int64) record.CopyProgress {
	out := record.CopyProgress{What: record.CopyOfDisk, Total: done + left, Remaining: left, Sent: m.work.mirrors.Carried(), Wire: m.wireSince()}
	if out.Rate = m.work.diskSpeed.See(time.Now(), done, uplinks.NotKnown, 0); out.Rate > 0 {
		out.LeftS = float64(left) / float64(out.Rate)
	}
	return out
}

// diskRate is what the best of the paths over which disks' lanes work carries, which takes the last of disks, bytes per
// second, at most the migration's limit; all is what all paths carry together, and counts where the rate of one is not
// known; 0: nothing is.
func (m *outgoing) diskRate(paths []peer.Path, all int64) (rate int64) {
	paths = m.work.mirrors.Working(paths)
	for _, p := range paths {
		rate = max(rate, p.Rate/8)
	}
	if ways.Rate(paths) == 0 {
		rate = all
	}
	if most := m.bandwidth.Bytes(); most > 0 && rate > 0 {
		rate = min(rate, most)
	}
	return rate
}

// compareCopied has the destination say whether it has of each read-only disk what was sent. Nothing of them is sent
// after that.
func (m *outgoing) compareCopied(ctx context.Context) error {
	copied := talk.Copied{Sums: m.work.mirrors.Sums()}
	if len(copied.Sums) == 0 {
		return nil
	}
	patience := limits.Limit{Name: "patience", For: m.a.config.Patience}
	return patience.Do(ctx, func(ctx context.Context) error { return m.call(ctx, "disks", copied, nil) })
}

// finishDisks brings the disks of the stopped guest in sync, for good. It comes before
// the release, so that any failure is undone here.
func (m *outgoing) finishDisks(ctx context.Context) error {
	w := m.work.mirrors
	if w == nil {
		return nil
	}
	m.bandwidth.KeepApart(0) // QEMU does not heed its limit either when it comes to its end
	if err := m.rec.Timed(record.StepDisks, func() error { return w.Finish(ctx) }); err != nil {
		return err
	}
	m.rec.Edit(func(r *record.Report) { r.DiskBytes = w.Carried() })
	return nil
}

// undoSeed ends all mirrors, also those that an earlier agent began. The disks here are
// as if there had been none; what the destination has of them it removes.
func (m *outgoing) undoSeed(ctx context.Context) error {
	if w := m.work.mirrors; w != nil {
		m.countWire()
		m.countDisks(w.Carried())
		w.Close() // first: a job that waits for a dead path could not be cancelled
		m.work.mirrors = nil
	}
	if len(m.guest.Held().Description.Disks) == 0 || !m.guest.Alive() {
		return nil
	}
	blocks, err := blocksOf(m.guest.Machine())
	if err != nil {
		return nil //nolint:nilerr // then there are no mirrors
	}
	return blocks.DropMirrors(ctx)
}

// countDisks notes what the disks' streams have taken.
func (m *outgoing) countDisks(carried int64) {
	m.rec.Edit(func(r *record.Report) { r.DiskBytes = ofDisks(r, carried) })
}

// ofDisks is what disks' streams, which have taken so much, have sent of all that left. Where a stream broke some of it
// waits in the kernel and never left: it is no more than what did, where that was counted, by every path.
func ofDisks(r *record.Report, carried int64) int64 {
	var left int64
	for _, bytes := range r.WireBytes {
		left += bytes
	}
	if left > 0 && len(r.WireUncounted) == 0 {
		return min(carried, left)
	}
	return carried
}
