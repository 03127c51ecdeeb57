package pages

import (
	"testing"
	"time"
)

// manyWait is a store in post-copy of which so many pages wait, each third of them hot.
func manyWait(total uint64) *Store {
	s := New(total, NewArena(1<<20, nil, zeros{}))
	for n := range total {
		p := &s.pages[n]
		p.flags |= seen | waiting
		if n%3 == 0 {
			p.heat = uint8(1 + n%5) //nolint:gosec // few
		}
		s.queue(n, p)
	}
	s.PostCopy()
	return s
}

// TestOrderKeepsNobodyWaiting: who comes to the store while the order of a large guest is made, as with an
// acknowledgement, gets in before it is.
func TestOrderKeepsNobodyWaiting(t *testing.T) {
	for range 20 {
		s := manyWait(1 << 18)
		taken, came := make(chan error, 1), make(chan [2]bool, 1)
		s.mu.Lock()
		go func() {
			_, err := s.Take(1)
			taken <- err
		}()
		time.Sleep(5 * time.Millisecond) // it waits for the store now, and the other behind it
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			came <- [2]bool{s.ordering != nil, s.ordered}
		}()
		time.Sleep(5 * time.Millisecond)
		s.mu.Unlock()
		if err := <-taken; err != nil {
			t.Fatal(err)
		}
		switch got := <-came; {
		case got[1]:
			t.Fatal("nobody else came to the store while the order was made")
		case got[0]:
			return
		}
	}
	t.Error("the other came before in each try")
}

// TestUrgentBeforeTheOrder: what the guest waits for goes before the order is made, which goes on where it was.
func TestUrgentBeforeTheOrder(t *testing.T) {
	const total = 10 * orderedAtOnce * areaPages
	s, whole := manyWait(total), manyWait(total)
	whole.order()
	for part := range 21 { // one that begins, and two of each 256 areas
		s.orderSome()
		s.Urgent(uint64(part))
		f, err := s.Take(MaxPages)
		if err != nil || !f.Urgent || len(f.Pages) != 1 || s.ordered != (part == 20) {
			t.Fatalf("after part %d: %+v, ordered %v, %v", part, f, s.ordered, err)
		}
	}
	s.near, s.around = nil, nil
	for n := range uint64(21) {
		whole.take(&Frame{}, n, &whole.pages[n])
	}
	for range 100 {
		f, err := s.Take(MaxPages)
		g, werr := whole.Take(MaxPages)
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		for i := range f.Pages {
			if f.Pages[i].Number != g.Pages[i].Number {
				t.Fatalf("page %d goes, want %d", f.Pages[i].Number, g.Pages[i].Number)
			}
		}
	}
}
