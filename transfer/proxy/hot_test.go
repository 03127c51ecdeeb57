package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pages"
)

// TestHotStaysForThePause: from the third round on, pages that are written again and again stay until the guest is
// stopped; the hottest alone where all would take more than a tenth of its pause.
func TestHotStaysForThePause(t *testing.T) {
	const hot, warm, total = 5, 15, 60
	for budget, want := range map[time.Duration]uint64{
		0: 0, 20 * time.Millisecond: 0, 40 * time.Millisecond: hot, 300 * time.Millisecond: hot + warm, // room for 0, 0, 5 and 70
	} {
		synctest.Test(t, func(t *testing.T) {
			s := carrying(t, 10e6, total)
			s.config = SourceConfig{Budget: budget, Eager: true}
			s.again = 4000
			for round, written := range []uint64{total, hot + warm, hot + warm, hot} {
				for page := range written {
					if err := s.store.Put(page, someContent(byte(round+1))); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.restrain(); err != nil {
					t.Fatal(err)
				}
			}
			gone := uint64(0)
			take := func() {
				for f, err := s.store.Take(pages.MaxPages); f != nil || err != nil; f, err = s.store.Take(pages.MaxPages) {
					if err != nil {
						t.Fatal(err)
					}
					gone += uint64(len(f.Pages))
				}
			}
			if take(); gone != total-want {
				t.Errorf("budget %v: %d of %d pages go before the pause, want all but %d", budget, gone, total, want)
			}
			s.store.Stop()
			if take(); gone != total {
				t.Errorf("budget %v: %d of %d pages go", budget, gone, total)
			}
		})
	}
}
