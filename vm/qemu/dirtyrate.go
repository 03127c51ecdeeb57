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

// dirtyLook is how often QEMU is asked how far a measurement is.
const dirtyLook = 20 * time.Millisecond

// DirtyRate asks QEMU's page sampling (calc-dirty-rate, since 5.2, in milliseconds since 8.2:
// QAPI migration.json). One that is still under way, whoever asked for it, is awaited first:
// to ask while the thread of the last one has not yet begun leaves a thread on QEMU's list of
// RCU readers that is no more (migration/dirtyrate.c, get_dirtyrate_thread: "change dirtyrate
// state failed"; seen with 10.0.2), and once another thread takes its stack, QEMU's
// call_rcu goes round in that list for ever and QEMU answers nobody.
func (p *Process) DirtyRate(ctx context.Context, over time.Duration) (int64, error) {
	p.rating.Lock()
	defer p.rating.Unlock()
	var memory struct {
		Base int64 `json:"base-memory"`
	}
	if err := p.qmp.Do(ctx, "query-memory-size-summary", nil, &memory); err != nil {
		return 0, err
	}
	if _, err := p.dirtyRated(ctx, 0, dirtyRate.idle); err != nil {
		return 0, err
	}
	over, span := p.span(over)
	perGB := min(max(samples*gib/max(1, memory.Base), fewestPerGB), mostPer)
	span["sample-pages"] = perGB
	if err := p.qmp.Do(ctx, "calc-dirty-rate", span, nil); err != nil {
		return 0, err
	}
	answer, err := p.dirtyRated(ctx, over, dirtyRate.there)
	if err != nil {
		return 0, err
	}
	return *answer.Rate * mib, nil
}

// dirtyRate is what query-dirty-rate says.
type dirtyRate struct {
	Status string `json:"status"`
	Rate   *int64 `json:"dirty-rate"` // MiB per second
	Pages  int64  `json:"sample-pages"`
	Start  int64  `json:"start-time"`
	Time   int64  `json:"calc-time"`
}

// there says whether a measurement has ended.
func (r dirtyRate) there() bool { return r.Status == "measured" && r.Rate != nil }

// idle says whether none is under way: one that was asked for and has not begun is
// "unstarted" as well as where there never was one, but knows what it was asked for.
func (r dirtyRate) idle() bool {
	return r.Status == "measured" || r.Status == "unstarted" && r.Pages == 0 && r.Start == 0 && r.Time == 0
}

// dirtyRated waits, and then asks QEMU until its measurement is so far.
func (p *Process) dirtyRated(ctx context.Context, wait time.Duration, enough func(dirtyRate) bool) (dirtyRate, error) {
	next := time.NewTimer(wait)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return dirtyRate{}, fmt.Errorf("measure the dirty rate: %w", ctx.Err())
		}
		var answer dirtyRate
		if err := p.qmp.Do(ctx, "query-dirty-rate", nil, &answer); err != nil || enough(answer) {
			return answer, err
		}
		next.Reset(dirtyLook)
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
