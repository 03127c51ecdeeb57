package pages

import (
	"slices"
	"testing"
)

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

// TestPostCopyOrder: in post-copy the area of a page that is urgent follows it, the last one first; hot pages by
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

// TestPostCopyAround: what lies around a page that was urgent goes before what does not: its block, then the nearest
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
