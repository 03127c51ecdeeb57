package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"godwit/transfer/pages"
	"godwit/transfer/paths"
)

// TestEagerReadsEveryRound: with a long queue no round is held up whose guest is to be stopped as soon as all was read:
// what is not read by then is read in the pause. So is none from when that is asked for on.
func TestEagerReadsEveryRound(t *testing.T) {
	const count = 2 * leastAhead / pages.Size
	for _, ahead := range []bool{false, true} {
		readsEveryRound(t, count, false, ahead)
	}
	readsEveryRound(t, count, true, false)
}

// readsEveryRound has rounds of so many pages put by a Source that is eager, or is told to read ahead.
func readsEveryRound(t *testing.T, count int, eager, ahead bool) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errClosed) // whoever would wait says so
	s := &Source{config: SourceConfig{Eager: eager}, store: pages.New(uint64(count), pages.NewArena(4*leastAhead, nil, nil)), hurried: make(chan struct{}), ctx: ctx}
	s.sender = paths.NewSender(ctx, paths.SenderConfig{})
	defer s.sender.Close()
	if ahead {
		s.ReadAhead(8 * leastAhead)
	}
	for round := range 3 {
		for number := range uint64(count) {
			data := make([]byte, pages.Size)
			binary.NativeEndian.PutUint64(data, number<<8+uint64(round)+1)
			if err := s.store.Put(number, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.restrain(); (err == nil) != (eager || ahead) || err != nil && !errors.Is(err, errClosed) {
			t.Errorf("eager %v, ahead %v, round %d: %v", eager, ahead, round+1, err)
		}
	}
}
