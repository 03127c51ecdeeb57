package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
)

// TestLastRoundsRest: a guest that always writes to the same few pages is not read as fast as its
// QEMU looks for them, but all that QEMU had written meanwhile is; in the stop phase it is read at once.
func TestLastRoundsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Source{config: SourceConfig{Eager: true}, store: pages.New(1, pages.NewArena(1<<20, nil, nil)), hurried: make(chan struct{}), ctx: t.Context()}
		s.sender = paths.NewSender(t.Context(), paths.SenderConfig{})
		defer s.sender.Close()
		data := make([]byte, pages.Size)
		round := func() time.Duration {
			begun := time.Now()
			data[0]++
			if err := s.store.Put(0, data); err != nil {
				t.Fatal(err)
			}
			s.read.Add(pages.Size)
			if err := s.take(nil, &qstream.RoundEnd{}); err != nil {
				t.Fatal(err)
			}
			return time.Since(begun)
		}
		for n := range 3 {
			if took := round(); took != 0 {
				t.Errorf("round %d was read in %v: it is one of the first", n+1, took)
			}
		}
		for n := range 8 {
			if took := round(); took != leastRound {
				t.Errorf("last round %d was read in %v, want %v", n+1, took, leastRound)
			}
		}
		s.restAfter = s.read.Load() + 2*pages.Size // as if QEMU had written two more by then
		for _, want := range []time.Duration{0, leastRound} {
			if took := round(); took != want {
				t.Errorf("after a round that had waited for us: %v, want %v", took, want)
			}
		}
		s.Hurry()
		for range 8 {
			if took := round(); took != 0 {
				t.Errorf("a round was read in %v in the stop phase", took)
			}
		}
	})
}
