package pages

import (
	"bytes"
	"testing"
)

// TestSettlesAFew: no more pages wait for Stop than were said; the others go on.
func TestSettlesAFew(t *testing.T) {
	const hot, most = 10, 4
	s := New(hot, NewArena(4*hot*Size, nil, nil))
	put := func(id byte) {
		for page := range uint64(hot) {
			if err := s.Put(page, bytes.Repeat([]byte{id}, Size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(1)
	take := func(want int) *Frame {
		t.Helper()
		f, err := s.Take(MaxPages)
		if err != nil || f == nil || len(f.Pages) != want {
			t.Fatalf("%+v, %v; want %d pages", f, err, want)
		}
		s.Sent(f)
		return f
	}
	f := take(hot)
	s.Settle(most)
	if err := s.Acked(f.Number); err != nil {
		t.Fatal(err)
	}
	put(2)
	if kept := s.Progress().Kept; kept != most {
		t.Errorf("%d are kept", kept)
	}
	f = take(hot - most)
	if err := s.Acked(f.Number); err != nil {
		t.Fatal(err)
	}
	put(3)
	if kept := s.Progress().Kept; kept != most {
		t.Errorf("%d are kept when all are written again", kept)
	}
	take(hot - most)
	s.Stop()
	take(most)
}

// TestGoesOnWithoutAStop: what was kept for a Stop that does not come goes, and is kept again for the next.
func TestGoesOnWithoutAStop(t *testing.T) {
	s := New(1, NewArena(4*Size, nil, nil))
	id := byte(0)
	put := func() {
		id++
		if err := s.Put(0, bytes.Repeat([]byte{id}, Size)); err != nil {
			t.Fatal(err)
		}
	}
	goes := func() {
		t.Helper()
		f, err := s.Take(MaxPages)
		if err != nil || f == nil || len(f.Pages) != 1 || f.Pages[0].Data[0] != id {
			t.Fatalf("it does not go: %+v, %v", f, err)
		}
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(kept uint64) {
		t.Helper()
		if f, err := s.Take(MaxPages); f != nil || err != nil || s.Progress().Kept != kept {
			t.Fatalf("it does not wait for Stop: %+v, %v, %d kept", f, err, s.Progress().Kept)
		}
	}
	for range 2 {
		s.Settle(1)
		put()
		goes()
		put()
		waits(1)
		s.GoOn()
		goes()
		s.Hold()
		put()
		waits(0)
		s.GoOn()
		goes()
	}
}
