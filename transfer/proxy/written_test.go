package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pages"
	"godwit/transfer/qstream"
)

// TestDirtyRate: a guest writes to some pages in turn, and to others all the time. Whether rounds take a second or
// milliseconds, what it writes is the same: each page counts once a second.
func TestDirtyRate(t *testing.T) {
	const total, always, perSecond = 1000, 100, 400 // of 800 that it writes to in turn
	for _, round := range []time.Duration{50 * time.Millisecond, 20 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := carrying(t, 10e6, total)
			s.config = SourceConfig{Eager: true}
			version := byte(0)
			read := func(numbers map[uint64]bool) {
				version++
				for page := range uint64(total) {
					if !numbers[page] {
						continue
					}
					if err := s.take(nil, &qstream.Page{Number: page, Data: someContent(version)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.take(nil, &qstream.RoundEnd{}); err != nil {
					t.Fatal(err)
				}
			}
			all := map[uint64]bool{}
			for page := range uint64(total) {
				all[page] = true
			}
			read(all)
			turn, known := uint64(0), 0
			for begun := time.Now(); time.Since(begun) < 6*time.Second; {
				time.Sleep(round)
				written := map[uint64]bool{}
				for page := range uint64(always) {
					written[page] = true
				}
				for range int(perSecond * round / time.Second) {
					written[always+turn%800] = true
					turn++
				}
				read(written)
				rate := s.Stats().DirtyRate
				if rate == 0 && known == 0 {
					if took := time.Since(begun); took > 3*time.Second {
						t.Fatalf("rounds of %v: not known after %v", round, took)
					}
					continue
				}
				known++
				if want := float64((always + perSecond) * pages.Size); float64(rate) < 0.95*want || float64(rate) > 1.05*want {
					t.Fatalf("rounds of %v: %d bytes per second, want %.0f", round, rate, want)
				}
			}
			if known == 0 {
				t.Errorf("rounds of %v: never known", round)
			}
		})
	}
}
