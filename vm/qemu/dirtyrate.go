package qemu

import (
	"context"
	"fmt"
	"time"
)

const (
	// samples is how many pages of a guest are looked at, within what QEMU allows for
	// each GiB: a guest of 256 MiB is known to a quarter of a percent.
	samples              = 8192
	fewestPerGB, mostPer = 128, 16384
	gib                  = 1 << 30
	mib                  = 1 << 20
)

// DirtyRate asks QEMU's page sampling (calc-dirty-rate, since 5.2, in milliseconds since 8.2:
// QAPI migration.json).
func (p *Process) DirtyRate(ctx context.Context, over time.Duration) (int64, error) {
	var memory struct {
		Base int64 `json:"base-memory"`
	}
	if err := p.qmp.Do(ctx, "query-memory-size-summary", nil, &memory); err != nil {
		return 0, err
	}
	over, span := p.span(over)
	perGB := min(max(samples*gib/max(1, memory.Base), fewestPerGB), mostPer)
	span["sample-pages"] = perGB
	if err := p.qmp.Do(ctx, "calc-dirty-rate", span, nil); err != nil {
		return 0, err
	}
	wait := time.NewTimer(over)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("measure the dirty rate: %w", ctx.Err())
		}
		var answer struct {
			Status string `json:"status"`
			Rate   *int64 `json:"dirty-rate"` // MiB per second
		}
		if err := p.qmp.Do(ctx, "query-dirty-rate", nil, &answer); err != nil {
			return 0, err
		}
		if answer.Status == "measured" && answer.Rate != nil {
			return *answer.Rate * mib, nil
		}
		wait.Reset(20 * time.Millisecond)
	}
}

// span is the time that QEMU can measure over, at least what is wished, and how it is told.
func (p *Process) span(over time.Duration) (time.Duration, map[string]any) {
	if over >= time.Second || !p.qmp.Version().AtLeast(8, 2) {
		seconds := max(1, int64(over/time.Second))
		return time.Duration(seconds) * time.Second, map[string]any{"calc-time": seconds}
	}
	over = max(over, leastSpan).Truncate(time.Millisecond)
	return over, map[string]any{"calc-time": over.Milliseconds(), "calc-time-unit": "millisecond"}
}

// leastSpan is the shortest that QEMU takes.
const leastSpan = 50 * time.Millisecond
