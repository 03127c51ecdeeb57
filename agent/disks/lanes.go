package disks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"

	"godwit/agent/config"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/transfer"
	"godwit/transfer/coding"
	"godwit/transfer/paths"
	"godwit/transfer/pipe"
	"godwit/vm"
)

// diskIdentity is what both ends know of the n-th disk's lanes.
func diskIdentity(p migration.Plan, key []byte, n int) (paths.Identity, error) {
	return lanes.Identity(fmt.Sprintf("%s/disk%d", p.ID, n), key)
}

// open opens the way of the n-th disk.
func (s *Source) open(n int) (*pipe.Source, error) {
	id, err := diskIdentity(s.Plan, s.Key, n)
	if err != nil {
		return nil, err
	}
	header := peer.Header{Migration: s.Plan.ID, Kind: lanes.Disk, Number: n}
	over, share := lanes.Over(s.Link, s.Paths, len(s.Disks)*len(s.Paths), func(int) peer.Header { return header })
	way := pipe.Open(s.Life, id, over, s.Limit)
	go share.Keep(way.Done(), func() []paths.Path { return way.Stats().Paths })
	return way, nil
}

// Working are those of paths over which a disk's lane works now, which have what uplinks they share for themselves; all
// of them where there are no disks.
func (s *Source) Working(all []peer.Path) []peer.Path {
	if s == nil {
		return all
	}
	works := map[string]bool{}
	for _, way := range s.ways {
		for _, p := range way.Stats().Paths {
			works[p.Path] = works[p.Path] || p.Lanes > 0
		}
	}
	out := slices.DeleteFunc(slices.Clone(all), func(p peer.Path) bool { return !works[p.Name] })
	config.ShareEnds(out)
	return out
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

// Expected is what comes to a host.
type Expected struct {
	Plan   migration.Plan
	Key    []byte              // of the migration's lanes
	Disks  []vm.Disk           // in the order in which their source numbers them
	Files  map[string]*os.File // of those that are ReadOnly, by path
	Socket string              // where the waiting QEMU takes the others in
	Log    *slog.Logger
}

// Intake takes disks in.
type Intake struct {
	Expected
	ctx    context.Context //nolint:containedctx // of all of them
	cancel context.CancelFunc
	disks  []*fixedDisk // nil: the waiting QEMU serves it

	mu   sync.Mutex
	ways map[int]*pipe.Destination // those of which a lane has come
}

// Await takes lanes of disks, until Stop or the end of life.
func Await(life context.Context, e Expected) *Intake {
	k := &Intake{Expected: e, disks: make([]*fixedDisk, len(e.Disks)), ways: map[int]*pipe.Destination{}}
	for n, d := range e.Disks {
		if d.ReadOnly {
			k.disks[n] = &fixedDisk{id: d.ID, size: d.Size, file: e.Files[d.Path]}
		}
	}
	k.ctx, k.cancel = context.WithCancel(life)
	return k
}

// Stop ends them all, less than two seconds; those that had not ended by themselves are given up, and the source is told so.
func (k *Intake) Stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ends sync.WaitGroup
	for _, way := range k.ways {
		ends.Go(func() { way.Close() }) //nolint:errcheck // it is given up
	}
	ends.Wait()
	k.cancel()
}

// Seal lets nobody write to read-only disks any more.
func (k *Intake) Seal() {
	for _, d := range k.disks {
		d.seal()
	}
}

// Serve serves a lane of the n-th disk, until it ends. The first one opens the way to the waiting QEMU, or to the file of a
// read-only disk. On error it is to be refused, and told why: there is no such disk, or the migration's key is none.
func (k *Intake) Serve(lane net.Conn, n int) error {
	way, err := k.of(n)
	if err != nil {
		return err
	}
	if err := way.Serve(k.ctx, lane); err != nil && !errors.Is(err, context.Canceled) {
		k.Log.Info("a disk's lane ended", "migration", k.Plan.ID, "number", n, "error", err)
	}
	return nil
}

// of is the way of the n-th disk.
func (k *Intake) of(n int) (*pipe.Destination, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if way := k.ways[n]; way != nil {
		return way, nil
	}
	if n < 0 || n >= len(k.disks) {
		return nil, fmt.Errorf("disk %d of %d", n, len(k.disks))
	}
	id, err := diskIdentity(k.Plan, k.Key, n)
	if err != nil {
		return nil, err
	}
	way := pipe.Accept(k.ctx, id)
	k.ways[n] = way
	go func() {
		unpacked, err := coding.Under(way)
		switch d := k.disks[n]; {
		case err != nil:
		case d != nil:
			err = transfer.ServeDisk(unpacked, d.id, d.size, d, &d.heard)
		default:
			err = transfer.ServeStream(k.ctx, unpacked, k.Socket, nil)
		}
		if err != nil && k.ctx.Err() == nil {
			k.Log.Info("a disk's stream ended", "migration", k.Plan.ID, "number", n, "error", err)
		}
	}()
	return way, nil
}
