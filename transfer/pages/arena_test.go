package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

// TestEnlarged: a store that is full has room for more once it got more memory, and what it held before is as it was,
// whether or not the last piece of that memory was a whole one, and in use.
func TestEnlarged(t *testing.T) {
	for _, c := range []struct{ first, put, then int }{
		{300, 300, 1000}, {300, 280, 1000}, {300, 100, 1000}, {512, 512, 1000}, {1, 1, 1000}, {300, 300, 300}, {300, 300, 200},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := New(2000, NewArena(int64(c.first)*Size, nil, nil))
			holds := func(number int) []byte {
				data := make([]byte, Size)
				binary.NativeEndian.PutUint64(data, uint64(number+1)) //nolint:gosec // not negative
				return data
			}
			number := 0
			put := func() error {
				err := s.Put(uint64(number), holds(number)) //nolint:gosec // not negative
				if err == nil {
					number++
				}
				return err
			}
			for range c.put {
				if err := put(); err != nil {
					t.Fatal(err)
				}
			}
			if full := c.put == c.first; full != errors.Is(put(), ErrFull) || s.Progress().Full != full {
				t.Fatalf("full after %d: %+v", number, s.Progress())
			}
			s.Enlarge(int64(c.then) * Size)
			if s.Progress().Full {
				t.Error("it is full still")
			}
			for put() == nil {
			}
			if most := max(c.first, c.then); number > most || number < most-chunkSlots || c.then <= c.first && number != c.first {
				t.Errorf("%d found room, of %d", number, most)
			}
			taken := 0
			for f, err := s.Take(MaxPages); f != nil; f, err = s.Take(MaxPages) {
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range f.Pages {
					if got := binary.NativeEndian.Uint64(p.Data); got != p.Number+1 {
						t.Fatalf("page %d has the content of %d", p.Number, got-1)
					}
					taken++
				}
			}
			if taken != number {
				t.Errorf("%d were taken of %d", taken, number)
			}
		})
	}
}

// TestSpilledStaysThere: once the spill was used more memory changes nothing.
func TestSpilledStaysThere(t *testing.T) {
	s := New(10, NewArena(Size, nil, memoryFile{}))
	s.End()
	for n := range uint64(4) {
		if n == 3 {
			s.Enlarge(10 * Size)
		}
		if err := s.Put(n, content(byte(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	if p := s.Progress(); p.Held != Size || p.Spilled != 3*Size {
		t.Errorf("%d bytes in memory, %d in the spill", p.Held, p.Spilled)
	}
	for _, p := range mustTake(t, s, 4).Pages {
		if p.Data[0] != byte(p.Number+1) { //nolint:gosec // few
			t.Errorf("page %d has the content of %d", p.Number, p.Data[0]-1)
		}
	}
}
