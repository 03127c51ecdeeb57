package proxy

import (
	"context"
	"time"

	"godwit/transfer/pages"
)

const (
	// catchUpLimit bounds CatchUp; a guest of some GB that writes all of it is read once in that time.
	catchUpLimit = time.Second
	// fewPages of a round are read in some 10 ms.
	fewPages = (4 << 20) / pages.Size
	// quietFor is after how long without a page QEMU has none.
	quietFor = 30 * time.Millisecond
)

// CatchUp reads without rest, however long the queue is, until QEMU has little left that it has not
// sent: in the stop phase it sends its devices after all that. For PostCopy, which needs no
// shorter queue. It ends when a round was short, or no shorter than the one before, or nothing comes.
func (s *Source) CatchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	s.catching.Store(true)
	defer s.catching.Store(false)
	now := s.Stats().Progress
	first, round, put, putAt, before := now.Round, now.Round, now.Put, time.Now(), uint64(0)
	for {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		}
		now := s.Stats().Progress
		if now.Put != put {
			put, putAt = now.Put, time.Now()
		} else if time.Since(putAt) > quietFor {
			return
		}
		if now.Round == round || len(now.Rounds) < 2 {
			continue
		}
		if round = now.Round; round == first+1 { // first was read in part before, and its length tells nothing
			continue
		}
		read := now.Rounds[len(now.Rounds)-2] // the last that is whole
		if read <= fewPages || before > 0 && read > before/4*3 {
			return
		}
		before = read
	}
}
