package proxy_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"godwit/transfer/pages"
	"godwit/transfer/proxy"
	"godwit/vm/vmtest"
)

func besideFakes(t *testing.T, beside *proxy.Beside) *fakes {
	t.Helper()
	return newFakesWith(t, proxy.DestinationConfig{Beside: beside}, proxy.SourceConfig{})
}

// besideTwo are two guests from one host, of which the first has copied its memory, and what that
// is: the second will have the same, at other places, but for a tenth.
func besideTwo(t *testing.T, rng *rand.Rand, beside *proxy.Beside) (first, second *fakes, memory [][]byte) {
	t.Helper()
	first, second, memory = besideFakes(t, beside), besideFakes(t, beside), make([][]byte, fakePages)
	first.copied(t, rng, memory)
	memory = slices.Clone(memory)
	rng.Shuffle(len(memory), func(i, j int) { memory[i], memory[j] = memory[j], memory[i] })
	for i := range fakePages / 10 {
		memory[i*10] = nil
	}
	return first, second, memory
}

// Of two guests that move at the same time the second need not bring what the first has brought.
func TestBeside(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	first, second, memory := besideTwo(t, rng, new(proxy.Beside))
	if room := first.dst.Copied(); room < fakePages/2*pages.Size || second.dst.Copied() != 0 {
		t.Errorf("the first one's copy takes %d bytes, that of the second, which has not begun, %d", room, second.dst.Copied())
	}
	second.leave(t, rng, memory, func() { second.offered(t) })
	if s := second.src.Stats(); s.Missed > 0 || s.Acked > fakePages*pages.Size/5 {
		t.Errorf("%d bytes went, %d pages missed; codings %v", s.Acked, s.Missed, s.Codings.Pages)
	}
	first.switchOver(t)
}

// What the first guest writes after it was offered is not what the second has: it is missed, and
// travels whole.
func TestBesideThatChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	first, second, memory := besideTwo(t, rng, new(proxy.Beside))
	second.leave(t, rng, memory, func() {
		second.offered(t)
		for page := range uint64(fakePages / 2) {
			first.from.write(t, rng, page)
		}
		first.delivered(t, fakePages+fakePages/2)
	})
	if s := second.src.Stats(); s.Missed == 0 {
		t.Errorf("none was missed; codings %v", s.Codings.Pages)
	}
	first.switchOver(t)
}

// The first guest's move fails while the second relies on what it has brought: that is withdrawn,
// and what was asked for already is missed.
func TestBesideThatFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	first, second, memory := besideTwo(t, rng, new(proxy.Beside))
	second.leave(t, rng, memory, func() {
		second.offered(t)
		first.dst.Close()
		for limit := time.Now().Add(hang); second.src.Stats().Offered > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%d contents are believed to be there", second.src.Stats().Offered)
			}
		}
	})
	<-first.src.Done()
	if first.src.Err() == nil {
		t.Error("the first has not failed")
	}
	if s := second.src.Stats(); s.Missed > 0 || s.Codings.Pages[pages.Known] > 0 {
		t.Errorf("%d pages missed; codings %v", s.Missed, s.Codings.Pages)
	}
}

// The same in the middle of the second's copy: what it has asked for is missed, and comes after all.
func TestBesideThatFailsLater(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	first, second, memory := besideTwo(t, rng, new(proxy.Beside))
	second.limit.Set(64 << 10)
	second.leave(t, rng, memory, func() {
		second.offered(t)
		time.AfterFunc(100*time.Millisecond, func() {
			first.dst.Close()
			second.limit.Set(0)
		})
	})
	s := second.src.Stats()
	t.Logf("%d pages missed, codings %v", s.Missed, s.Codings.Pages)
}

// Guests that come from other hosts share nothing.
func TestBesideOfAnotherHost(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	first, second, memory := besideFakes(t, new(proxy.Beside)), besideFakes(t, new(proxy.Beside)), make([][]byte, fakePages)
	first.copied(t, rng, memory)
	second.leave(t, rng, slices.Clone(memory), func() { time.Sleep(300 * time.Millisecond) })
	if s := second.src.Stats(); s.Offered > 0 || s.Codings.Pages[pages.Known] > 0 || s.Acked < fakePages*pages.Size {
		t.Errorf("%d contents of another host's guest were offered; codings %v", s.Offered, s.Codings.Pages)
	}
	first.switchOver(t)
}

// TestGuestsBeside moves two real guests with the same noise, the second while the first does.
func TestGuestsBeside(t *testing.T) {
	beside := new(proxy.Beside)
	var all []*pair
	var links []*link
	for range 2 {
		p := newPair(t, vmtest.Writer{Start: 4 << 20, Size: 24 << 20, Hot: 1 << 20, Delay: 200_000})
		p.beside = beside
		all, links = append(all, p), append(links, p.link("a"))
	}
	all[0].migrate(links[0])
	all[0].until(links[0], "a round", func(s proxy.Stats) bool { return s.Round >= 2 && s.Delivered > 60<<8 && s.Waiting < 512 })
	links[1].limit.Set(1 << 20)
	all[1].migrate(links[1])
	all[1].until(links[1], "offers", func(s proxy.Stats) bool { return s.Offered > 20<<8 })
	links[1].limit.Set(0)
	all[1].until(links[1], "a round", func(s proxy.Stats) bool { return s.Round >= 2 && s.Delivered > 60<<8 && s.Waiting < 512 })
	if s := links[1].src.Stats(); s.Acked > 8<<20 {
		t.Errorf("%d bytes of the second went; codings %v", s.Acked, s.Codings.Pages)
	}
	all[0].finish(links[0])
	all[1].finish(links[1])
}
