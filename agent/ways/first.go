package ways

import (
	"context"
	"sync"
	"time"

	"godwit/agent/peer"
	"godwit/internal/clock"
)

// othersAfter is when pairs of uplinks are tried beside the first, as it has not answered.
const othersAfter = 300 * time.Millisecond

// FirstThatAnswers is the index of the first of paths that try finds to answer, and the round trip there; -1: none. The
// others are tried where the first does not answer soon, beside it and one another; the error says why that does not.
func FirstThatAnswers(ctx context.Context, paths []peer.Path, try func(context.Context, peer.Path) (time.Duration, error)) (int, time.Duration, error) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	type answer struct {
		rtt time.Duration
		err error
	}
	answers := make([]chan answer, len(paths))
	for k, p := range paths {
		answers[k] = make(chan answer, 1)
		all.Go(func() {
			if k > 0 && !clock.Sleep(ctx, othersAfter) {
				answers[k] <- answer{err: context.Cause(ctx)}
				return
			}
			rtt, err := try(ctx, p)
			answers[k] <- answer{rtt, err}
		})
	}
	first := <-answers[0]
	if first.err == nil {
		return 0, first.rtt, nil
	}
	for k := 1; k < len(paths); k++ {
		if a := <-answers[k]; a.err == nil {
			return k, a.rtt, first.err
		}
	}
	return -1, 0, first.err
}
