package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/transfer"
	"godwit/transfer/coding"
	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/pipe"
)

// diskIdentity is what both ends know of the n-th disk's lanes.
func diskIdentity(p migration.Plan, key []byte, n int) (paths.Identity, error) {
	return lanes.Identity(fmt.Sprintf("%s/disk%d", p.ID, n), key)
}

// openDisk opens the way of the n-th of so many disks, which have limit together.
func (m *outgoing) openDisk(all []peer.Path, n, disks int, limit *pace.Share) (*pipe.Source, error) {
	id, err := diskIdentity(m.plan, m.work.laneKey, n)
	if err != nil {
		return nil, err
	}
	header := peer.Header{Migration: m.plan.ID, Kind: lanes.Disk, Number: n}
	over, share := lanes.Over(m.link, all, disks*len(all), func(int) peer.Header { return header })
	way := pipe.Open(m.a.ctx, id, over, limit)
	go share.Keep(way.Done(), func() []paths.Path { return way.Stats().Paths })
	return way, nil
}

// askDisk has the waiting QEMU grant a disk over its lanes.
func askDisk(ctx context.Context, way *pipe.Source, name string) (transfer.Disk, error) {
	disk, err := transfer.AskDisk(ctx, coding.Over(way), name)
	if err == nil {
		return disk, nil
	}
	for _, p := range way.Stats().Paths {
		if p.Last != "" {
			err = fmt.Errorf("%w (path %s: %s)", err, p.Path, p.Last)
		}
	}
	return disk, err
}

// diskWays are the ways of disks that come here.
type diskWays struct {
	ctx    context.Context //nolint:containedctx // of all of them
	cancel context.CancelFunc
	disks  []*fixedDisk // nil: the waiting QEMU serves it

	mu   sync.Mutex
	ways map[int]*pipe.Destination // those of which a lane has come
}

// awaitDisks takes lanes of these disks, until the work's end.
func (m *incoming) awaitDisks(disks []*fixedDisk) {
	w := &diskWays{disks: disks, ways: map[int]*pipe.Destination{}}
	w.ctx, w.cancel = context.WithCancel(m.a.ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if earlier := m.work.diskWays; earlier != nil {
		go earlier.stop()
	}
	m.work.diskWays = w
}

func (m *incoming) diskWays() *diskWays {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.work.diskWays
}

// stop ends them all, less than two seconds; those that had not ended by themselves are given up, and the source is told so.
func (w *diskWays) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ends sync.WaitGroup
	for _, way := range w.ways {
		ends.Go(func() { way.Close() }) //nolint:errcheck // it is given up
	}
	ends.Wait()
	w.cancel()
}

// seal lets nobody write to read-only disks any more.
func (w *diskWays) seal() {
	for _, d := range w.disks {
		d.seal()
	}
}

// serveDisk serves a lane of a disk. The first one opens the way to the waiting QEMU, or to the file of a read-only disk.
func (m *incoming) serveDisk(s *peer.Stream) {
	w := m.diskWays()
	if w == nil {
		lanes.Refuse(s, fmt.Sprintf("the agent of %s was started again while disks were copied", m.a.config.Host))
		return
	}
	way, err := w.of(m, s.Header.Number)
	if err != nil {
		lanes.Refuse(s, err.Error())
		return
	}
	if err := way.Serve(w.ctx, heardStream{s, m.noteHeard}); err != nil && !errors.Is(err, context.Canceled) {
		m.a.log.Info("a disk's lane ended", "migration", m.plan.ID, "number", s.Header.Number, "error", err)
	}
}

// of is the way of the n-th disk.
func (w *diskWays) of(m *incoming, n int) (*pipe.Destination, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if way := w.ways[n]; way != nil {
		return way, nil
	}
	if n < 0 || n >= len(w.disks) {
		return nil, fmt.Errorf("disk %d of %d", n, len(w.disks))
	}
	id, err := diskIdentity(m.plan, m.work.preparation.LaneKey, n)
	if err != nil {
		return nil, err
	}
	way := pipe.Accept(w.ctx, id)
	w.ways[n] = way
	go func() {
		unpacked, err := coding.Under(way)
		switch d := w.disks[n]; {
		case err != nil:
		case d != nil:
			err = transfer.ServeDisk(unpacked, d.id, d.size, d, &d.heard)
		default:
			err = transfer.ServeStream(w.ctx, unpacked, m.diskSocket(), nil)
		}
		if err != nil && w.ctx.Err() == nil {
			m.a.log.Info("a disk's stream ended", "migration", m.plan.ID, "number", n, "error", err)
		}
	}()
	return way, nil
}
