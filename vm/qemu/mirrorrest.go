package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A new node, and a new mirror, change QEMU's graph of block nodes. For that its main loop waits for all that is
// under way to copies (include/block/graph-lock.h), and the guest stands still with it. Mirrors meanwhile send what
// they have left, to their end: with QEMU 10 the second disk's mirror began, and its guest ran on, when the first disk was
// there. So the others rest while one begins.

// restMirrors has the mirrors that are under way rest, and waits until nothing of them is: of each at most 16 MiB, which
// go to its copy. The guest runs on. resume lets them go on; on an error they do already.
func (p *Process) restMirrors(ctx context.Context) (resume func() error, err error) {
	var resting []string
	resume = func() error {
		over, ctx := ctx.Err() != nil, context.WithoutCancel(ctx)
		if over { // the mirrors are dropped next, and QEMU may wait for what is ended only then
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, takeBackWait)
			defer stop()
		}
		var errs []error
		for _, id := range resting {
			// One that broke as it rested is told of as any that broke.
			if err := p.qmp.Do(ctx, "block-job-resume", map[string]any{"device": id}, nil); err != nil && !isOver(err, "resume") {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	jobs, err := p.mirrorJobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.ended() {
			continue
		}
		switch err := p.qmp.Do(ctx, "block-job-pause", map[string]any{"device": j.ID}, nil); {
		case err == nil:
			resting = append(resting, j.ID)
		case !isOver(err, "pause"):
			return nil, errors.Join(err, resume())
		}
	}
	if err := p.awaitRest(ctx, resting); err != nil {
		return nil, errors.Join(err, resume())
	}
	return resume, nil
}

// awaitRest waits until each of these jobs rests, or has ended.
func (p *Process) awaitRest(ctx context.Context, ids []string) error {
	tick := time.NewTicker(jobLook)
	defer tick.Stop()
	for {
		jobs, err := p.mirrorJobs(ctx)
		if err != nil {
			return err
		}
		busy := slices.IndexFunc(jobs, func(j job) bool {
			return slices.Contains(ids, j.ID) && !j.ended() && j.Status != "paused" && j.Status != "standby"
		})
		if busy < 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for what job %s has under way: %w", jobs[busy].ID, ctx.Err())
		}
	}
}
