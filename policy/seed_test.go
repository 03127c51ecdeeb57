package policy

import (
	"slices"
	"testing"
	"time"
)

// cutWhileWritten is what is left when a guest writes through a cut of ten seconds, and the copy catches up then.
func cutWhileWritten(second int64) int64 {
	return max(0, min(max(second-4, 0)*5, 50-(second-14)*3)) << 20
}

// TestSeeding plays the copy of a disk in looks a second apart.
func TestSeeding(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		left func(second int64) int64 // bytes
		done func(second int64) int64
		want SeedVerdict // the first that is not wait
		at   int64       // second of it

		ready bool
		early int64 // seconds for which it is not known how much there is
	}{
		"copies all":       {func(s int64) int64 { return max(100-s*10, 0) * mib }, func(s int64) int64 { return s * 10 * mib }, SeedWait, 0, false, 0},
		"cut for 20 s":     {func(s int64) int64 { return (200 - max(s-20, 0)) * mib }, func(s int64) int64 { return max(s-20, 0) * mib }, SeedWait, 0, false, 0},
		"cut for good":     {func(int64) int64 { return 100 * mib }, func(int64) int64 { return 5 }, SeedStalled, 31, false, 0},
		"guest is faster":  {func(s int64) int64 { return (100 + s) * mib }, func(s int64) int64 { return s * 10 * mib }, SeedBlock, 4, false, 0},
		"as fast as it":    {func(int64) int64 { return 64 * mib }, func(s int64) int64 { return s * 10 * mib }, SeedBlock, 4, false, 0},
		"little is left":   {func(s int64) int64 { return s%2*mib/2 + mib/2 }, func(s int64) int64 { return s * mib }, SeedWait, 0, true, 0},
		"never nothing":    {func(s int64) int64 { return s%2*mib/2 + mib/2 }, func(s int64) int64 { return s * mib }, SeedBlock, 4, false, 0},
		"falls behind":     {func(s int64) int64 { return s * mib }, func(s int64) int64 { return s * mib }, SeedBlock, 5, true, 0},
		"nothing to do":    {func(int64) int64 { return 0 }, func(int64) int64 { return 7 }, SeedWait, 0, false, 0},
		"begins late":      {func(s int64) int64 { return min(s/3, 1) * (100 - s) * mib }, func(s int64) int64 { return max(s-2, 0) * mib }, SeedWait, 0, false, 3},
		"second disk late": {func(s int64) int64 { return (100 + min(s/3, 1)*100 - s) * mib }, func(s int64) int64 { return s * mib }, SeedWait, 0, false, 3},
		"late, and behind": {func(s int64) int64 { return min(s/3, 1) * (100 + s) * mib }, func(s int64) int64 { return s * mib }, SeedBlock, 7, false, 3},
		"writes in a cut":  {cutWhileWritten, func(s int64) int64 { return (min(s, 4)*10 + max(s-14, 0)*13) * mib }, SeedWait, 0, true, 0},
		"slow, and behind": {func(s int64) int64 { return (100 + s) * mib }, func(s int64) int64 { return s / 2 * mib }, SeedBlock, 6, true, 0},
		"slow but falling": {func(s int64) int64 { return 1000*mib - s }, func(s int64) int64 { return s }, SeedWait, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := Seeding{Patience: 30 * time.Second}
			got, at := SeedWait, int64(0)
			for i := int64(0); i < 60 && got == SeedWait; i++ {
				got, at = s.See(SeedLook{At: time.Unix(1000+i, 0), Done: c.done(i), Remaining: c.left(i), Ready: c.ready, Early: i < c.early}), i
			}
			if got == SeedWait {
				at = 0
			}
			if got != c.want || at != c.at {
				t.Errorf("%s at %d s, want %s at %d s", got, at, c.want, c.at)
			}
		})
	}
}

// TestSeedingOps plays copies whose pieces of a MiB end in groups, as those of several disks over a slow path do, in
// looks of 100 ms: a guest that outruns them is told from a cut.
func TestSeedingOps(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		ends   []int64 // tenths of a second in a group's time at which a piece ends
		every  int64   // tenths: a group's time
		writes int64   // bytes in a tenth
		cut    int64   // the second from which nothing ends, for ten; 0: there is no cut
		want   SeedVerdict
		within int64 // seconds
	}{
		"two disks":          {[]int64{0, 3}, 25, 100 << 10, 0, SeedBlock, 10},
		"two disks, nearly":  {[]int64{0, 1}, 29, 100 << 10, 0, SeedBlock, 10},
		"two disks, faster":  {[]int64{0, 5}, 18, 200 << 10, 0, SeedBlock, 10},
		"many disks":         {[]int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 28, 900 << 10, 0, SeedBlock, 10},
		"long rests":         {[]int64{0, 1}, 70, 100 << 10, 0, SeedBlock, 20},
		"two disks, and cut": {[]int64{0, 3}, 25, 60 << 10, 60, SeedWait, 120},
		"cut":                {[]int64{0}, 1, 512 << 10, 60, SeedWait, 120},
	} {
		t.Run(name, func(t *testing.T) {
			s := Seeding{Patience: 30 * time.Second}
			left, done, got := int64(200*mib), int64(0), SeedWait
			for i := int64(0); i < c.within*10 && got == SeedWait; i++ {
				left += c.writes
				cut := c.cut > 0 && i >= c.cut*10 && i < c.cut*10+100
				if !cut && slices.Contains(c.ends, i%c.every) {
					piece := min(left, mib)
					left, done = left-piece, done+piece
				}
				got = s.See(SeedLook{At: time.Unix(1000, i*1e8), Done: done, Remaining: left, Ready: true})
			}
			if got != c.want {
				t.Errorf("%s within %d s, want %s", got, c.within, c.want)
			}
		})
	}
}
