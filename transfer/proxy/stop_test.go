package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pages"
	"godwit/transfer/paths"
)

// flyingTwice is a Source of a guest that has written again to what is under way.
func flyingTwice(t *testing.T, hot uint64) (*Source, *pages.Frame) {
	t.Helper()
	s := &Source{
		ctx: t.Context(), sender: paths.NewSender(t.Context(), paths.SenderConfig{}),
		store: pages.New(2*hot, pages.NewArena(int64(4*hot)*pages.Size, nil, nil)), //nolint:gosec // few
		again: 40, fresh: 4000, unlike: 4000,
	}
	var f *pages.Frame
	for round := range byte(3) {
		for page := range hot {
			if err := s.store.Put(page, someContent(round+1)); err != nil {
				t.Fatal(err)
			}
		}
		if round == 2 {
			break
		}
		if f != nil {
			if err := s.store.Acked(f.Number); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if f, err = s.store.Take(pages.MaxPages); err != nil || len(f.Pages) != int(hot) { //nolint:gosec // few
			t.Fatalf("%+v, %v", f, err)
		}
		s.store.Sent(f)
	}
	return s, f
}

// TestSettleWaitsForWhatIsUnderWay, and not for ever.
func TestSettleWaitsForWhatIsUnderWay(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const trip = 60 * time.Millisecond
			s, f := flyingTwice(t, 64)
			defer s.sender.Close() //nolint:errcheck // it had no lanes
			if arrives {
				time.AfterFunc(trip, func() {
					if err := s.store.Acked(f.Number); err != nil {
						t.Error(err)
					}
				})
			}
			begun := time.Now()
			s.Settle(t.Context())
			took, least, most := time.Since(begun), settleMost, settleMost
			if arrives {
				least, most = trip, trip+10*time.Millisecond
			}
			if took < least || took > most {
				t.Errorf("arrives %v: it took %v", arrives, took)
			}
		})
	}
}

// TestWhatIsUnderWayIsForeseenWhole: a page of which a version is under way travels whole, if that has not arrived when
// the guest is stopped. While it is copied that is not foreseen: it will have settled.
func TestWhatIsUnderWayIsForeseenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hot = 64
		s, f := flyingTwice(t, hot)
		defer s.sender.Close() //nolint:errcheck // it had no lanes
		copying := s.coded(s.store.Progress())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Settle(t.Context()) }()
		synctest.Wait() // it settles
		before := s.coded(s.store.Progress())
		if err := s.store.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
		after := s.coded(s.store.Progress())
		if copying != hot*40 || before != hot*4000 || after != hot*40 {
			t.Errorf("foreseen are %.0f bytes while it is copied, %.0f before they have arrived, %.0f after", copying, before, after)
		}
		<-ended
	})
}

// TestDrainWaitsForWhatIsUnderWay: where the rest follows the guest nothing goes any more before it is stopped, and what
// is under way has arrived, but for little, or is not waited for any more.
func TestDrainWaitsForWhatIsUnderWay(t *testing.T) {
	const frames, trip = 8, 60 * time.Millisecond
	for name, c := range map[string]struct{ acked, took int }{"it arrives": {frames, 4}, "it does not": {0, int(drainMost / trip)}} {
		synctest.Test(t, func(t *testing.T) {
			s := &Source{
				ctx: t.Context(), sender: paths.NewSender(t.Context(), paths.SenderConfig{}),
				store: pages.New((frames+1)*pages.MaxPages, pages.NewArena((frames+1)*pages.MaxPages*pages.Size, nil, nil)),
			}
			defer s.sender.Close() //nolint:errcheck // it had no lanes
			for page := range uint64((frames + 1) * pages.MaxPages) {
				if err := s.store.Put(page, someContent(byte(page%200+1))); err != nil {
					t.Fatal(err)
				}
			}
			for range frames {
				f, err := s.store.Take(pages.MaxPages)
				if err != nil || f == nil {
					t.Fatalf("%+v, %v", f, err)
				}
				s.store.Sent(f)
			}
			for i := range c.acked {
				time.AfterFunc(time.Duration(i+1)*trip, func() { s.store.Acked(uint64(i) + 1) }) //nolint:errcheck // it was sent
			}
			begun := time.Now()
			s.Drain(t.Context())
			if took := int((time.Since(begun) + trip/10) / trip); took != c.took {
				t.Errorf("%s: it took %v", name, time.Since(begun))
			}
			if f, err := s.store.Take(1); f != nil || err != nil {
				t.Errorf("%s: %+v goes still, %v", name, f, err)
			}
			s.store.PostCopy()
			if f, err := s.store.Take(1); f == nil || err != nil {
				t.Errorf("%s: nothing follows the guest: %v", name, err)
			}
			time.Sleep(frames * trip)
		})
	}
}
