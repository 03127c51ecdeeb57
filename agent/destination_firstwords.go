package agent

import (
	"context"
	"time"

	"godwit/agent/limits"
)

const (
	// firstWords is how many frames a guest sends to its clients before it is asked anything.
	firstWords = 3
	wordsEvery = 2 * time.Millisecond
)

// hearFirstWords lets a guest for which packets were held answer some of them before it is asked
// anything, and then leaves it alone for as long again. What each of its programs does first after a move
// is slow (without KVM every instruction is translated anew), and its clients wait for that. A quick guest
// is asked soon.
func (m *incoming) hearFirstWords(ctx context.Context) {
	rep := m.rec.Snapshot()
	if m.work.queue == nil || rep.Held == nil {
		return
	}
	wanted := min(uint64(max(*rep.Held, 0)), firstWords) //nolint:gosec // not negative
	if awaitWords(ctx, m.work.queue.Spoken, wanted) && wanted > 0 {
		sleep(ctx, min(time.Duration(m.rec.Now()-rep.Resumed), limits.FirstWords.For))
	}
}

// awaitWords waits until as many frames as wanted were sent, and says whether they were, or for limits.FirstWords.
func awaitWords(ctx context.Context, spoken func() (uint64, error), wanted uint64) bool {
	ctx, cancel := limits.FirstWords.On(ctx)
	defer cancel()
	for {
		if n, err := spoken(); err != nil || n >= wanted {
			return err == nil
		}
		if !sleep(ctx, wordsEvery) {
			return false
		}
	}
}
