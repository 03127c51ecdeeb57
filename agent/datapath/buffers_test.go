package datapath

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"godwit/migration"
	"godwit/transfer/pages"
	"godwit/transfer/proxy"
)

const gib = 1 << 30

// freed has so much memory be free on this host; negative: it does not say.
func freed(t *testing.T, bytes int64) {
	was := freeMemory
	t.Cleanup(func() { freeMemory = was })
	freeMemory = func() (int64, error) {
		if bytes < 0 {
			return 0, errors.New("it does not say")
		}
		return bytes, nil
	}
}

// kept is what a source takes beside its buffer for a guest of so much memory.
func kept(memory int64) int64 { return int64(pages.Need(uint64(memory) / pages.Size)) } //nolint:gosec // not negative

// TestBufferFitsTheHost: pages of a guest take no more memory of its host than half of what is free there, or three
// quarters where it misses them, whatever its size and the mode.
func TestBufferFitsTheHost(t *testing.T) {
	buffer := func(free int64, plan migration.Plan, memory int64) int64 {
		freed(t, free)
		return new(Buffers).New(plan, memory).Bytes()
	}
	postcopy := migration.Plan{Mode: "postcopy"}
	most := kept(64 * gib)
	for what, c := range map[string]struct{ got, want int64 }{
		"half of the guest":      {buffer(8*gib, migration.Plan{}, 128<<20), 64 << 20},
		"most":                   {buffer(8*gib, migration.Plan{}, 4*gib), proxy.DefaultBuffer},
		"most, on a full host":   {buffer(most+128<<20, migration.Plan{}, 64*gib), 64 << 20},
		"all":                    {buffer(8*gib, postcopy, gib), gib + leastBuffer},
		"all, on a smaller host": {buffer(8*gib, postcopy, 64*gib), (8*gib - most) / 2},
		"all, on a full host":    {buffer(most, postcopy, 64*gib), leastBuffer},
		"as asked for":           {buffer(most, migration.Plan{Mode: "postcopy", Buffer: gib}, 64*gib), gib},
	} {
		if c.got != c.want {
			t.Errorf("%s: a buffer of %d MiB, not %d", what, c.got>>20, c.want>>20)
		}
	}
	freed(t, 8*gib)
	if got := new(Buffers).Refill(64 * gib).Bytes(); got != (8*gib-most)/4*3 {
		t.Errorf("missing pages: a buffer of %d MiB", got>>20)
	}
	freed(t, -1)
	if got := new(Buffers).Refill(gib).Bytes(); got != gib+leastBuffer {
		t.Errorf("%d bytes where it is not known what is free", got)
	}
}

// TestBuffersFitTheHost: so do those of several guests together, of which none may have filled its own yet; what one
// has filled is not counted twice, and what has ended not at all.
func TestBuffersFitTheHost(t *testing.T) {
	const free = 8 * gib
	for what, c := range map[string]struct {
		share float64
		next  func(*Buffers) *Buffer
	}{
		"post-copy": {0.5, func(b *Buffers) *Buffer { return b.New(migration.Plan{Mode: "postcopy"}, 8*gib) }},
		"refills":   {0.75, func(b *Buffers) *Buffer { return b.Refill(8 * gib) }},
	} {
		freed(t, free)
		var b Buffers
		first, second, third := c.next(&b), c.next(&b), c.next(&b)
		if sum := first.Bytes() + second.Bytes() + third.Bytes(); float64(sum) > c.share*free || first.Bytes() < 2*gib {
			t.Errorf("%s: %d, %d and %d MiB of %d", what, first.Bytes()>>20, second.Bytes()>>20, third.Bytes()>>20, int64(free)>>20)
		}
		second.End()
		third.End()
		first.fills(func() int64 { return gib })
		freed(t, free-gib-kept(8*gib))
		fourth := c.next(&b)
		if got := fourth.Bytes(); got != leastBuffer {
			t.Errorf("%s: the first is being filled, and another gets %d MiB", what, got>>20)
		}
		first.End()
		fourth.End()
		freed(t, free)
		if got := c.next(&b).Bytes(); got < 2*gib {
			t.Errorf("%s: the first has ended, and another gets %d MiB", what, got>>20)
		}
	}
}

// TestBufferOfOneThatFollows: once the rest of a guest is to follow it its buffer may hold all, where half of what is
// free is as much; one that was asked for stays.
func TestBufferOfOneThatFollows(t *testing.T) {
	hybrid := migration.Plan{Mode: "hybrid"}
	for what, c := range map[string]struct {
		plan              migration.Plan
		free, other, want int64
	}{
		"room for all":       {hybrid, 64 * gib, 0, 8*gib + leastBuffer},
		"half of the host":   {hybrid, 8 * gib, 0, 4 * gib},
		"another has of it":  {hybrid, 8 * gib, gib, 3 * gib},
		"less than there is": {hybrid, gib, gib, proxy.DefaultBuffer},
		"as asked for":       {migration.Plan{Mode: "hybrid", Buffer: gib}, 64 * gib, 0, gib},
	} {
		freed(t, 64*gib)
		var b Buffers
		made := b.New(c.plan, 8*gib)
		made.fills(func() int64 { return 128 << 20 })
		if c.other > 0 {
			b.New(migration.Plan{Buffer: c.other}, 8*gib).fills(func() int64 { return 1 })
		}
		freed(t, c.free-128<<20)
		if got := made.Follow(c.plan, 8*gib); got != c.want {
			t.Errorf("%s: %d MiB, not %d", what, got>>20, c.want>>20)
		}
		if got := made.Bytes(); got != c.want {
			t.Errorf("%s: it is told as %d MiB", what, got>>20)
		}
	}
}

// TestBufferEndsWithItsSource: what a source was promised is free for others once it has ended.
func TestBufferEndsWithItsSource(t *testing.T) {
	source, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: filepath.Join(t.TempDir(), "out")})
	if err != nil {
		t.Fatal(err)
	}
	freed(t, 8*gib)
	var b Buffers
	b.New(migration.Plan{Mode: "postcopy"}, 8*gib).Fills(source)
	next := func() int64 {
		made := b.New(migration.Plan{Mode: "postcopy"}, 8*gib)
		defer made.End()
		return made.Bytes()
	}
	if got := next(); got != leastBuffer {
		t.Errorf("another gets %d MiB beside it", got>>20)
	}
	source.Close() //nolint:errcheck // nothing came
	for limit := time.Now().Add(10 * time.Second); next() < 2*gib; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it has ended, and has its buffer still")
		}
	}
}
