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

// TestSpilledContentsAreNotKept: what was read of the spill for a frame is let go when that was coded, however long it is on its way.
func TestSpilledContentsAreNotKept(t *testing.T) {
	s := New(4, NewArena(Size, nil, memoryFile{}))
	s.End()
	for n := range uint64(3) {
		if err := s.Put(n, content(byte(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	f, err := s.Take(3)
	if err != nil || len(f.Pages) != 3 {
		t.Fatal(err)
	}
	for i := range f.Pages {
		f.Pages[i].Coding = Raw
	}
	s.Sent(f)
	for _, p := range f.Pages[1:] {
		if p.Data != nil {
			t.Errorf("page %d is in memory", p.Number)
		}
	}
	if err := s.Missed(1, []uint64{1, 2}); err != nil { // and is there when it goes again
		t.Fatal(err)
	}
	f, err = s.Take(3)
	if err != nil || len(f.Pages) != 2 || f.Pages[0].Data[0] != 2 || f.Pages[1].Data[0] != 3 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestSpilledMost: what the spill ever held is known when it holds nothing any more, and slots
// that were left count once.
func TestSpilledMost(t *testing.T) {
	s := New(10, NewArena(Size, nil, memoryFile{}))
	s.End() // nothing waits for room from here on
	spilled := func(now, most int64) {
		t.Helper()
		if p := s.Progress(); p.Spilled != now*Size || p.SpilledMost != most*Size {
			t.Errorf("%d of at most %d bytes, want %d of %d pages", p.Spilled, p.SpilledMost, now, most)
		}
	}
	for n := range uint64(4) {
		if err := s.Put(n, content(byte(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	spilled(3, 3)
	for !s.Drained() {
		f := mustTake(t, s, 4)
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
	}
	spilled(0, 3)
}

func TestUrgentTravelsAlone(t *testing.T) {
	s := New(100, NewArena(100*Size, nil, nil))
	for page := range uint64(50) {
		if err := s.Put(page, content(byte(page))); err != nil {
			t.Fatal(err)
		}
	}
	s.PostCopy()
	if !s.Urgent(40) || !s.Urgent(0) || s.Urgent(60) {
		t.Error("urgent says the wrong thing of what waits")
	}
	f := mustTake(t, s, 64)
	if !f.Urgent || !slices.Equal(numbers(f), []uint64{40}) || !slices.Equal(f.Zero, []uint64{0}) {
		t.Errorf("took %v and zero %v", numbers(f), f.Zero)
	}
	if f := mustTake(t, s, 64); f.Urgent || len(f.Pages) != 48 {
		t.Errorf("then took %d", len(f.Pages))
	}
}

// TestMissedInPostCopy: a page that the guest waits for, and that could not be decoded, goes before
// all others again.
func TestMissedInPostCopy(t *testing.T) {
	s := New(200, NewArena(200*Size, nil, nil))
	for page := range uint64(100) {
		if err := s.Put(page, content(byte(1+page))); err != nil {
			t.Fatal(err)
		}
	}
	s.PostCopy()
	s.Urgent(40)
	f := mustTake(t, s, 8)
	s.Sent(f)
	s.Sent(mustTake(t, s, 8))
	if err := s.Missed(f.Number, []uint64{40}); err != nil {
		t.Fatal(err)
	}
	if f := mustTake(t, s, 8); !f.Urgent || !slices.Equal(numbers(f), []uint64{40}) || !f.Pages[0].Whole {
		t.Errorf("urgent %v: took %v", f.Urgent, numbers(f))
	}
}

// In post-copy the area of a page that is urgent follows it, the last one first; hot pages by
// themselves go before areas of them, the more the hotter they are, and what is not hot at the end.
func TestPostCopyOrder(t *testing.T) {
	s := New(2000, NewArena(2000*Size, nil, nil))
	put := func(version byte, pages ...uint64) {
		t.Helper()
		for _, page := range pages {
			if err := s.Put(page, content(version)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var cold, area []uint64
	for page := range uint64(64) {
		cold, area = append(cold, page), append(area, 640+page)
	}
	lonely, mild := []uint64{130, 131, 1900}, uint64(320)
	put(1, cold...)
	put(1, area...)
	put(1, append(lonely, 200, mild)...)
	for version := byte(2); version < 9; version++ {
		put(version, area...)
		put(version, lonely...)
	}
	put(2, mild)
	s.PostCopy()
	take := func(most int, want ...uint64) {
		t.Helper()
		if f := mustTake(t, s, most); !slices.Equal(numbers(f), want) {
			t.Errorf("took %v, want %v", numbers(f), want)
		}
	}
	take(5, 1900, 130, 131, 320, 640)
	s.Urgent(700)
	take(8, 700)
	take(3, area[1:4]...)
	s.Urgent(40)
	take(8, 40)
	take(4, cold[:4]...)
	take(64, slices.Concat(cold[4:40], cold[41:], area[4:9])...)
	take(64, slices.Concat(area[9:60], area[61:], []uint64{200})...)
}

// What lies around a page that was urgent goes before what does not: its block, then the nearest
// first; and that around the last one before that around others. What is hot goes before.
func TestPostCopyAround(t *testing.T) {
	const areas = 100
	s := New(areas*areaPages, NewArena(areas*areaPages*Size, nil, nil))
	put := func(area uint64, version byte) {
		if err := s.Put(area*areaPages+area%areaPages, content(version)); err != nil {
			t.Fatal(err)
		}
	}
	for area := range uint64(areas) {
		put(area, 1)
	}
	put(5, 2)
	s.PostCopy()
	for _, urgent := range []uint64{20, 60} {
		s.Urgent(urgent*areaPages + urgent%areaPages)
		mustTake(t, s, 7)
	}
	var got []uint64
	for range areas {
		f, err := s.Take(7)
		if err != nil {
			t.Fatal(err)
		}
		if f == nil {
			break
		}
		for _, page := range numbers(f) {
			got = append(got, page/areaPages)
		}
	}
	want := []uint64{5}
	add := func(area uint64) {
		if area != 20 && area != 60 && !slices.Contains(want, area) {
			want = append(want, area)
		}
	}
	for _, block := range []uint64{56, 16} {
		for area := range uint64(blockAreas) {
			add(block + area)
		}
		for away := range uint64(reach) {
			add(block + blockAreas + away)
			add(block - 1 - away)
		}
	}
	for area := range uint64(areas) {
		add(area)
	}
	if !slices.Equal(got, want) {
		t.Errorf("areas went as %v, want %v", got, want)
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
