package pages

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"godwit/internal/need"
)

func TestSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.SampledFrom([]uint64{1, 63, 64, 65, 4096, 4097, 300000}).Draw(t, "total")
		s, want := newSet(total), map[uint64]bool{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			n := rapid.Uint64Range(0, total-1).Draw(t, "n")
			if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				s.remove(n)
				delete(want, n)
			} else {
				s.add(n)
				want[n] = true
			}
		}
		var got []uint64
		for n, ok := s.next(0); ok; n, ok = s.next(n + 1) {
			got = append(got, n)
		}
		sorted := make([]uint64, 0, len(want))
		for n := range want {
			sorted = append(sorted, n)
		}
		slices.Sort(sorted)
		if !slices.Equal(got, sorted) || s.count != uint64(len(want)) {
			t.Fatalf("has %v, should have %v", got, sorted)
		}
	})
}

func TestClasses(t *testing.T) {
	for heat := range 256 {
		c := classOf(uint8(heat))
		if Floor(c) > heat || c+1 < Classes && Floor(c+1) <= heat {
			t.Errorf("heat %d is of class %d, from %d", heat, c, Floor(c))
		}
	}
}

// Identities must not be mistaken for each other where the fast hash is: a forged hash
// finds nothing.
func TestFastHashAloneFindsNothing(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		s := New(4, NewArena(2*Size, nil, nil))
		one := make([]byte, Size)
		binary.LittleEndian.PutUint64(one, 1)
		if err := s.Put(0, one); err != nil {
			t.Fatal(err)
		}
		f, err := s.Take(1)
		if err != nil {
			t.Fatal(err)
		}
		s.Find(&f.Pages[0])
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
		if evicted {
			s.arena.release(s.evict())
		}
		same, two := bytes.Clone(one), bytes.Clone(one)
		two[100] = 1
		if page, version, ok := s.Find(&Page{Number: 1, Data: same}); !ok || page != 0 || version != 1 {
			t.Errorf("evicted %v: found %d at %d, %v", evicted, page, version, ok)
		}
		forged := &Page{Number: 1, Data: two, fast: s.index.fast[0]}
		var id *Identity
		if s.matches(0, &s.pages[0], forged, &id) {
			t.Errorf("evicted %v: equal hashes were taken for equal contents", evicted)
		}
	}
}

// TestIdentifiedOnce: a page that is given up again, and whose identity is known since the first time, is found by
// that: a guest that stands still does not wait for another hash.
func TestIdentifiedOnce(t *testing.T) {
	s := New(4, NewArena(2*Size, nil, nil))
	one := make([]byte, Size)
	one[7] = 1
	for _, coding := range []Coding{Raw, Same} { // the second time the destination has it
		if err := s.Put(0, one); err != nil {
			t.Fatal(err)
		}
		f := mustTake(t, s, 1)
		if _, _, ok := s.Find(&f.Pages[0]); ok != (coding == Same) {
			t.Fatalf("found: %v", ok)
		}
		f.Pages[0].Coding = coding
		s.Sent(f)
		if err := s.Acked(f.Number); err != nil {
			t.Fatal(err)
		}
		if coding == Raw {
			s.arena.release(s.evict())
		}
	}
	first := Identity{1} // which no hash is
	*s.index.id(0) = first
	s.Stop()
	if s.evict() == 0 {
		t.Fatal("it is no base")
	}
	if p := &s.pages[0]; !p.is(indexed) || !p.is(identified) || *s.index.id(0) != first {
		t.Errorf("indexed %v, identified %v, hashed again %v", p.is(indexed), p.is(identified), *s.index.id(0) != first)
	}
}

// TestRuns compares with a look at every member.
func TestRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.OneOf(rapid.Uint64(), rapid.Just(uint64(0)), rapid.Just(^uint64(0))), 0, 5).Draw(t, "words")
		var want, got [][2]uint64
		for n := range uint64(len(words) * 64) {
			if words[n/64]&(1<<(n%64)) == 0 {
				continue
			}
			if last := len(want) - 1; last >= 0 && want[last][0]+want[last][1] == n {
				want[last][1]++
			} else {
				want = append(want, [2]uint64{n, 1})
			}
		}
		most := rapid.IntRange(1, 20).Draw(t, "most")
		for first, count := range Runs(words) {
			if got = append(got, [2]uint64{first, count}); len(got) == most {
				break
			}
		}
		if want = want[:min(len(want), most)]; !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestMissingOfALargeGuest: the guest stands still until it is known what waits, which takes about as long as to put
// the sets together.
func TestMissingOfALargeGuest(t *testing.T) {
	const total = 16 << 20 // 64 GiB
	all, none := newSet(total), &set{}
	for i := range all.levels[0] {
		all.levels[0][i] = ^uint64(0)
	}
	all.count = total
	s := &Store{zeros: all, blocked: none, heldBack: none}
	for c := range s.wait {
		s.wait[c] = none
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	listed, joined := time.Hour, time.Hour
	for range 5 {
		begun := need.Processor(t)
		s.Missing(func(first, count uint64) bool {
			if first != 0 || count != total {
				t.Errorf("%d pages from %d", count, first)
			}
			return true
		})
		now := need.Processor(t)
		listed, begun = min(listed, now-begun), now
		union(all)
		joined = min(joined, need.Processor(t)-begun)
	}
	if listed > 30*joined {
		t.Errorf("listed in %v, put together in %v", listed, joined)
	}
}
