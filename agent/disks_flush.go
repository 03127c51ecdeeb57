package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"godwit/agent/limits"
)

// flushDisks leaves little for QEMU to flush when it stops the guest: downtime.
// Storage may take minutes, or hang: that is left to itself when ctx ends.
func (m *outgoing) flushDisks(ctx context.Context) {
	if m.work.mirrors == nil {
		return
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		for _, d := range m.guest.Held.Description.Disks {
			if err := syncFile(d.Path); err != nil { // QEMU has it, and will flush it
				m.a.log.Info("flush disk", "guest", m.plan.Guest, "disk", d.ID, "error", err)
			}
		}
	}()
	select {
	case <-flushed:
	case <-ctx.Done():
	}
}

// flushShort is flushDisks for the time just before the guest is stopped. QEMU flushes once more then, downtime, what was
// written while a slow storage took a flush. So it is flushed until that takes a quarter of the downtime budget, gets no shorter, or
// half the flip's time has passed. A guest whose storage has not flushed in all of that time is not stopped: it would stand still for that.
func (m *outgoing) flushShort(ctx context.Context) error {
	ctx, cancel := limits.Flip.On(ctx)
	defer cancel()
	short, last := m.plan.Downtime/4, limits.Flip.For
	for begun := time.Now(); ; {
		before := time.Now()
		m.flushDisks(ctx)
		took := time.Since(before)
		if ctx.Err() != nil {
			return limits.Says(ctx, fmt.Errorf("flush the disks of guest %s; see whether its storage is well: %w", m.plan.Guest, ctx.Err()))
		}
		if took <= short || took > last*3/4 || time.Since(begun) >= limits.Flip.For/2 {
			return nil
		}
		last = took
	}
}

// flushEvery is between two flushes of disks while memory is copied; slow storage is left to the guest for flushRest times as
// long as a flush took.
const (
	flushEvery = 2 * time.Second
	flushRest  = 4
)

// keepFlushed flushes disks until ctx ends: what the guest wrote in minutes of copying would be
// flushed between the decision that memory fits and the pause, while it writes on.
func (m *outgoing) keepFlushed(ctx context.Context) {
	for rest := flushEvery; sleep(ctx, rest); {
		begun := time.Now()
		m.flushDisks(ctx)
		rest = max(flushEvery, flushRest*time.Since(begun))
	}
}

// syncFile puts what was written to a file on its storage. Tests have another.
var syncFile = func(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
