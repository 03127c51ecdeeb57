package agent

import (
	"context"
	"time"
)

const (
	// firstWords is how many frames a guest sends to its clients before it is asked anything.
	firstWords = 3
	wordsEvery = 2 * time.Millisecond
)

// hearFirstWords lets a guest for which packets were held answer some of them before it is
// asked anything. What it does first it does slowly (without KVM each instruction that it had
// run before is translated anew), and those who wait for it are its clients.
func (m *incoming) hearFirstWords(ctx context.Context) {
	held := m.rec.snapshot().Held
	if m.work.queue == nil || held == nil {
		return
	}
	awaitWords(ctx, m.work.queue.Spoken, min(uint64(max(*held, 0)), firstWords)) //nolint:gosec // not negative
}

// awaitWords waits until as many frames as wanted were sent, or for limitFirstWords.
func awaitWords(ctx context.Context, spoken func() (uint64, error), wanted uint64) {
	ctx, cancel := limitFirstWords.on(ctx)
	defer cancel()
	for {
		if n, err := spoken(); err != nil || n >= wanted || !sleep(ctx, wordsEvery) {
			return
		}
	}
}
