package pages

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
)

func mustTake(t *testing.T, s *Store, most int) *Frame {
	t.Helper()
	f, err := s.Take(most)
	if err != nil || f == nil {
		t.Fatalf("take: %v, %v", f, err)
	}
	return f
}

func numbers(f *Frame) []uint64 {
	var got []uint64
	for _, p := range f.Pages {
		got = append(got, p.Number)
	}
	return got
}

func TestColdestFirst(t *testing.T) {
	s := New(100, NewArena(100*Size, nil, nil))
	for i, round := range [][]uint64{{1, 2, 3, 4}, {2, 4}, {2}} {
		for _, page := range round {
			if err := s.Put(page, content(byte(10*i+int(page)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := numbers(mustTake(t, s, 64)); !slices.Equal(got, []uint64{1, 3, 4, 2}) {
		t.Errorf("took %v", got)
	}
	if p := s.Progress(); !slices.Equal(p.Rounds, []uint64{4, 2, 1}) || p.Hot != 1 || p.Superseded != 3 {
		t.Errorf("%+v", p)
	}
}

// TestSameFreesWhatWaitsBehindIt: a page that the guest wrote again while the content before was coded, and was found
// to be what the destination has, is taken next. It would wait for Stop else, and each such page would be downtime.
func TestSameFreesWhatWaitsBehindIt(t *testing.T) {
	s := New(100, NewArena(100*Size, nil, nil))
	for _, c := range []byte{1, 2} {
		if err := s.Put(7, content(c)); err != nil {
			t.Fatal(err)
		}
		f := mustTake(t, s, 64)
		if c == 1 {
			s.Sent(f)
			if err := s.Acked(f.Number); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := s.Put(7, content(3)); err != nil {
			t.Fatal(err)
		}
		f.Pages[0].Coding = Same
		s.Sent(f)
	}
	if f := mustTake(t, s, 64); !slices.Equal(numbers(f), []uint64{7}) || !bytes.Equal(f.Pages[0].Data, content(3)) {
		t.Errorf("took %v", numbers(f))
	}
}

// What waits for room and what waits for pages must hear of it, or both stop for good.
func TestReaderAndSenderWakeEachOther(t *testing.T) {
	const total, rounds = 300, 5
	s := New(total, NewArena(7*Size, nil, nil))
	s.Skip(2)
	var reader sync.WaitGroup
	reader.Go(func() {
		for round := range rounds {
			for page := range uint64(total) {
				for errors.Is(s.Put(page, content(byte(1+round))), ErrFull) {
					<-s.Room()
				}
			}
		}
		s.Stop()
	})
	got := map[uint64]byte{}
	done := make(chan struct{})
	go func() { reader.Wait(); close(done) }()
	for {
		f, err := s.Take(3)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			select {
			case <-s.Ready():
			case <-done:
				if s.Drained() {
					for page := range uint64(total) {
						if got[page] != rounds {
							t.Fatalf("page %d: %d", page, got[page])
						}
					}
					return
				}
			}
			continue
		}
		for _, p := range f.Pages {
			got[p.Number] = p.Data[0]
		}
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLiesOfThePeer(t *testing.T) {
	s := New(10, NewArena(10*Size, nil, nil))
	if err := s.Put(3, content(1)); err != nil {
		t.Fatal(err)
	}
	f := mustTake(t, s, 1)
	for _, frame := range []uint64{0, 1, 2, 1 << 63} {
		if s.Acked(frame) == nil {
			t.Errorf("acknowledgement of frame %d, which was not sent, was taken", frame)
		}
	}
	s.Sent(f)
	if s.Missed(1, []uint64{4}) == nil {
		t.Error("a page was missed that was not sent")
	}
	if err := s.Missed(1, []uint64{3, 3}); err != nil {
		t.Error(err)
	}
	if p := s.Progress(); p.Missed != 1 || p.Waiting != 1 || p.InFlight != 0 {
		t.Errorf("%+v", p)
	}
	s.Sent(mustTake(t, s, 1))
	if s.Missed(2, []uint64{3}) == nil {
		t.Error("a page was missed again that went whole")
	}
	if s.Put(10, nil) == nil || s.Put(0, make([]byte, 10)) == nil {
		t.Error("put what is no page of the guest")
	}
	if s.Urgent(1 << 60) {
		t.Error("a page is urgent that the guest does not have")
	}
}

// TestZerosAskedForInAnyOrder: a frame has them by rising number, or it cannot be coded.
func TestZerosAskedForInAnyOrder(t *testing.T) {
	s := New(100, NewArena(Size, nil, nil))
	for n := range uint64(100) {
		if err := s.Put(n, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.PostCopy()
	for _, n := range []uint64{70, 3, 40} {
		s.Urgent(n)
	}
	if f := mustTake(t, s, 4); !f.Urgent || !slices.Equal(f.Zero, []uint64{3, 40, 70}) {
		t.Errorf("%+v", f)
	}
}

// TestAskedAgainAndAgain: a peer that asks for a page more than once takes no more memory.
func TestAskedAgainAndAgain(t *testing.T) {
	s := New(10, NewArena(10*Size, nil, nil))
	if err := s.Put(3, content(1)); err != nil {
		t.Fatal(err)
	}
	s.PostCopy()
	for range 1000 {
		if !s.Urgent(3) {
			t.Fatal("a page that waits is not urgent")
		}
	}
	if len(s.urgent) > 1 || len(s.near) > 1 {
		t.Errorf("%d urgent pages, %d areas", len(s.urgent), len(s.near))
	}
	f, err := s.Take(4)
	if err != nil || !f.Urgent || len(f.Pages) != 1 || len(s.urgent) > 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestHaltWaitsForRoom: what is put after Halt goes to no spill before End, and all that was put before goes.
func TestHaltWaitsForRoom(t *testing.T) {
	s := New(10, NewArena(Size, nil, memoryFile{}))
	s.Hold()
	if err := s.Put(0, content(1)); err != nil {
		t.Fatal(err)
	}
	s.Halt()
	if err := s.Put(1, content(2)); !errors.Is(err, ErrFull) || s.Progress().Spilled > 0 {
		t.Fatalf("%v, %d bytes in the spill", err, s.Progress().Spilled)
	}
	f := mustTake(t, s, 4)
	s.Sent(f)
	if err := s.Acked(f.Number); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(1, content(2)); err != nil {
		t.Errorf("there is room, and it is not put: %v", err)
	}
	s.End()
	if err := s.Put(2, content(3)); err != nil || s.Progress().Spilled != Size {
		t.Errorf("after End: %v, %d bytes in the spill", err, s.Progress().Spilled)
	}
}

func TestFullWithoutSpill(t *testing.T) {
	s := New(10, NewArena(Size, nil, nil))
	if err := s.Put(0, content(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(1, content(1)); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := s.Put(0, content(2)); err != nil {
		t.Errorf("newer version of what waits: %v", err)
	}
	s.End()
	if err := s.Put(1, content(1)); err == nil {
		t.Error("put without room")
	}
	if _, err := s.Take(1); err == nil {
		t.Error("a store that lost a page is of use")
	}
}

func BenchmarkStore(b *testing.B) {
	const total = 1 << 14
	s := New(total, NewArena(total*Size/2, nil, nil))
	data := bytes.Repeat([]byte{1}, Size)
	b.SetBytes(Size)
	page := uint64(0)
	for b.Loop() {
		data[page%Size]++
		if err := s.Put(page, data); err != nil {
			b.Fatal(err)
		}
		if page = (page + 1) % total; page%64 == 0 {
			f, err := s.Take(64)
			if err != nil {
				b.Fatal(err)
			}
			s.Sent(f)
			if err := s.Acked(f.Number); err != nil {
				b.Fatal(err)
			}
		}
	}
}
