package datapath

import (
	"errors"
	"testing"

	"godwit/migration"
	"godwit/transfer/pages"
	"godwit/transfer/proxy"
)

// TestBufferFitsTheHost: pages of a guest take no more memory of its host than half of what is free there, or three
// quarters where it misses them, whatever its size and the mode.
func TestBufferFitsTheHost(t *testing.T) {
	const gib = 1 << 30
	defer func(was func() (int64, error)) { freeMemory = was }(freeMemory)
	buffer := func(free int64, plan migration.Plan, memory int64) int64 {
		freeMemory = func() (int64, error) { return free, nil }
		return Buffer(plan, memory)
	}
	postcopy := migration.Plan{Mode: "postcopy"}
	kept := int64(pages.Need(64 * gib / pages.Size))
	for what, c := range map[string]struct{ got, want int64 }{
		"half of the guest":      {buffer(8*gib, migration.Plan{}, 128<<20), 64 << 20},
		"most":                   {buffer(8*gib, migration.Plan{}, 4*gib), proxy.DefaultBuffer},
		"most, on a full host":   {buffer(kept+128<<20, migration.Plan{}, 64*gib), 64 << 20},
		"all":                    {buffer(8*gib, postcopy, gib), gib + leastBuffer},
		"all, on a smaller host": {buffer(8*gib, postcopy, 64*gib), (8*gib - kept) / 2},
		"all, on a full host":    {buffer(kept, postcopy, 64*gib), leastBuffer},
		"as asked for":           {buffer(kept, migration.Plan{Mode: "postcopy", Buffer: gib}, 64*gib), gib},
	} {
		if c.got != c.want {
			t.Errorf("%s: a buffer of %d MiB, not %d", what, c.got>>20, c.want>>20)
		}
	}
	freeMemory = func() (int64, error) { return 8 * gib, nil }
	if got := RefillBuffer(64 * gib); got != (8*gib-kept)/4*3 {
		t.Errorf("missing pages: a buffer of %d MiB", got>>20)
	}
	freeMemory = func() (int64, error) { return 0, errors.New("it does not say") }
	if got := RefillBuffer(gib); got != gib+leastBuffer {
		t.Errorf("%d bytes where it is not known what is free", got)
	}
}
