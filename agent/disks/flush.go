package disks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"godwit/agent/limits"
	"godwit/internal/clock"
)

// Flush leaves little for QEMU to flush when it stops the guest: downtime.
// Storage may take minutes, or hang: that is left to itself when ctx ends.
func (s *Source) Flush(ctx context.Context) {
	if s == nil {
		return
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		for _, d := range s.Disks {
			if err := syncFile(d.Path); err != nil { // QEMU has it, and will flush it
				s.Log.Info("flush disk", "guest", s.Plan.Guest, "disk", d.ID, "error", err)
			}
		}
	}()
	select {
	case <-flushed:
	case <-ctx.Done():
	}
}

// FlushShort is Flush for the time just before the guest is stopped. QEMU flushes once more then, downtime, what was
// written while a slow storage took a flush. So it is flushed until that takes a quarter of the downtime budget, gets
// no shorter, or half the flip's time has passed. A guest whose storage has not flushed in all of that time is not
// stopped: it would stand still for that.
func (s *Source) FlushShort(ctx context.Context) error {
	if s == nil {
		return ctx.Err()
	}
	ctx, cancel := limits.Flip.On(ctx)
	defer cancel()
	short, last := s.Plan.Downtime/4, limits.Flip.For
	for begun := time.Now(); ; {
		before := time.Now()
		s.Flush(ctx)
		took := time.Since(before)
		if ctx.Err() != nil {
			return limits.Says(ctx, fmt.Errorf("flush the disks of guest %s; see whether its storage is well: %w", s.Plan.Guest, ctx.Err()))
		}
		if took <= short || took > last*3/4 || time.Since(begun) >= limits.Flip.For/2 {
			return nil
		}
		last = took
	}
}

// flushEvery is between two flushes of disks while memory is copied; slow storage is left to the guest for flushRest
// times as long as a flush took.
const (
	flushEvery = 2 * time.Second
	flushRest  = 4
)

// KeepFlushed flushes disks until ctx ends: what the guest wrote in minutes of copying would be
// flushed between the decision that memory fits and the pause, while it writes on.
func (s *Source) KeepFlushed(ctx context.Context) {
	for rest := flushEvery; clock.Sleep(ctx, rest); {
		begun := time.Now()
		s.Flush(ctx)
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
