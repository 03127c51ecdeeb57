package agent

import (
	"context"
	"time"

	"godwit/agent/limits"
	"godwit/agent/sample"
	"godwit/policy"
	"godwit/vm/qemu"
)

// diskLook is what a look at a guest's disks tells of them.
type diskLook struct {
	facts  policy.DiskFacts
	writes *diskWrites // nil: nobody says
}

// diskWrites is what a guest had written to its disks by then.
type diskWrites struct {
	at           time.Time
	times, bytes int64
}

// lookAtDisks begins to look at what the disks hold, beside the rest of the check. Paths carry link bytes per second.
func (m *outgoing) lookAtDisks(ctx context.Context, link float64) {
	all := m.guest.Held().Description.Disks
	if len(all) == 0 {
		return
	}
	answer := make(chan diskLook, 1)
	m.work.disksLooked = answer
	go func() {
		ctx, cancel := limits.Sample.On(ctx)
		defer cancel()
		out := diskLook{writes: m.diskWrites(ctx)}
		for _, d := range all {
			holds, packed := sample.Disk(d.Path, link)
			out.facts.Bytes, out.facts.Packed = out.facts.Bytes+holds, out.facts.Packed+packed
		}
		answer <- out
	}()
}

// diskWrites asks the guest's QEMU; nil: it does not say.
func (m *outgoing) diskWrites(ctx context.Context) *diskWrites {
	process, ok := m.guest.Machine().(interface {
		DiskWrites(ctx context.Context, disks []string) (times, bytes int64, err error)
	})
	if !ok {
		return nil
	}
	var ids []string
	for _, d := range m.guest.Held().Description.Disks {
		ids = append(ids, d.ID)
	}
	now := time.Now()
	times, bytes, err := process.DiskWrites(ctx, ids)
	if err != nil {
		m.a.log.Info("what the guest writes to its disks is not known", "migration", m.plan.ID, "error", err)
		return nil
	}
	return &diskWrites{now, times, bytes}
}

var _ interface {
	DiskWrites(ctx context.Context, disks []string) (times, bytes int64, err error)
} = (*qemu.Process)(nil)

// diskFacts is what was found there, nothing where nothing was yet: storage may hang.
func (m *outgoing) diskFacts(ctx context.Context, loses policy.Loses) policy.DiskFacts {
	if m.work.disksLooked == nil {
		return policy.DiskFacts{}
	}
	ctx, cancel := limits.Sample.On(ctx)
	defer cancel()
	select {
	case look := <-m.work.disksLooked:
		look.facts.Loses = loses
		if look.writes != nil {
			look.facts.Writes, look.facts.Size = look.writes.since(m.diskWrites(ctx))
		}
		return look.facts
	case <-ctx.Done():
		return policy.DiskFacts{}
	}
}

// since is how often per second the guest has written until later, and how many bytes each time.
func (w *diskWrites) since(later *diskWrites) (perSecond, size float64) {
	if later == nil || later.times <= w.times || !later.at.After(w.at) {
		return 0, 0
	}
	times := float64(later.times - w.times)
	return times / later.at.Sub(w.at).Seconds(), float64(later.bytes-w.bytes) / times
}
