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
