package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestSeedingIsForeseen: a disk that nobody writes to goes once, as fast as its path takes it; what is written
// meanwhile goes in small requests, of which a long path carries a few at a time, until the guest's writes have to
// wait.
func TestSeedingIsForeseen(t *testing.T) {
	const mib = 1 << 20
	carried := 0.95 * 100e6 / 8
	for name, c := range map[string]struct {
		disks       DiskFacts
		least, most time.Duration
		bytes       float64 // of all that they hold
		waits       bool
	}{
		"none":                               {DiskFacts{}, 0, 0, 0, false},
		"idle":                               {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Loses: Loses{0, 20 * ms}}, 8 * time.Second, 10 * time.Second, 1, false},
		"idle, and it packs to a third":      {DiskFacts{Bytes: 96 * mib, Packed: 32 * mib, Loses: Loses{0, 20 * ms}}, 2500 * ms, 4 * time.Second, 1. / 3, false},
		"idle, over a long way":              {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Loses: Loses{0, 500 * ms}}, 15 * time.Second, 20 * time.Second, 1, false},
		"a write now and then":               {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Writes: 2, Size: 4096, Loses: Loses{0, 20 * ms}}, 8 * time.Second, 10 * time.Second, 1.01, false},
		"many writes, over a short way":      {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Writes: 256, Size: 4096, Loses: Loses{0, 20 * ms}}, 13 * time.Second, 18 * time.Second, 1.4, true},
		"many writes, over a long way":       {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Writes: 256, Size: 4096, Loses: Loses{0, 500 * ms}}, 70 * time.Second, 140 * time.Second, 1.9, true},
		"large writes, over a long way":      {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Writes: 16, Size: 65536, Loses: Loses{0, 500 * ms}}, 40 * time.Second, 90 * time.Second, 1.4, true},
		"many writes, over a way that loses": {DiskFacts{Bytes: 96 * mib, Packed: 96 * mib, Writes: 256, Size: 4096, Loses: Loses{0.05, 80 * ms}}, 25 * time.Second, 50 * time.Second, 1.6, true},
	} {
		got := c.disks.Seeding(carried)
		if got.Took < c.least || got.Took > c.most || got.Waits != c.waits {
			t.Errorf("%s: %v, it waits: %v; want %v to %v, %v", name, got.Took, got.Waits, c.least, c.most, c.waits)
		}
		if want := c.bytes * float64(c.disks.Bytes) * framing; float64(got.Bytes) < 0.8*want || float64(got.Bytes) > 1.25*want {
			t.Errorf("%s: %d bytes, want about %.0f", name, got.Bytes, want)
		}
	}
}

// TestSeedingForecastEnds: whatever is said of disks, something is foreseen, no less for twice as much that they hold,
// and no less where they are written to.
func TestSeedingForecastEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := DiskFacts{
			Bytes: rapid.Int64Range(0, 1<<60).Draw(t, "bytes"), Packed: rapid.Int64Range(0, 1<<60).Draw(t, "packed"),
			Writes: rapid.Float64Range(0, 1e9).Draw(t, "writes"), Size: rapid.Float64Range(0, 1e9).Draw(t, "size"),
			Loses: Loses{rapid.Float64Range(0, 1).Draw(t, "share"), time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "rtt"))},
		}
		carried := rapid.Float64Range(1, 1e12).Draw(t, "carried")
		got := d.Seeding(carried)
		if got.Took < 0 || got.Bytes < 0 || d.Bytes == 0 && got != (Seeded{}) {
			t.Fatalf("%+v", got)
		}
		twice := d
		twice.Bytes, twice.Packed = 2*d.Bytes, 2*d.Packed
		if more := twice.Seeding(carried); more.Took < got.Took || more.Bytes < got.Bytes {
			t.Fatalf("%+v, and of twice as much %+v", got, more)
		}
		idle := d
		idle.Writes = 0
		if less := idle.Seeding(carried); less.Took > got.Took+ms {
			t.Fatalf("%+v, and of one that nobody writes to %+v", got, less)
		}
	})
}
