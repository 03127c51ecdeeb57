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
// what is not read by then is read in the pause.
func TestEagerReadsEveryRound(t *testing.T) {
	const count = 2 * leastAhead / pages.Size
	for eager, rounds := range map[bool]int{true: 3, false: 0} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errClosed) // whoever would wait says so
		s := &Source{config: SourceConfig{Eager: eager}, store: pages.New(count, pages.NewArena(4*leastAhead, nil, nil)), hurried: make(chan struct{}), ctx: ctx}
		s.sender = paths.NewSender(ctx, paths.SenderConfig{})
		for round := range 3 {
			for number := range uint64(count) {
				data := make([]byte, pages.Size)
				binary.NativeEndian.PutUint64(data, number<<8+uint64(round)+1)
				if err := s.store.Put(number, data); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.restrain(); (err == nil) != (round < rounds) || err != nil && !errors.Is(err, errClosed) {
				t.Errorf("eager %v, round %d: %v", eager, round+1, err)
			}
		}
		s.sender.Close()
	}
}
