package uplinks

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pace"
)

// TestBandwidthOfAllTogether: memory and disks have one limit, evenly, and each has all of it where the other rests.
func TestBandwidthOfAllTogether(t *testing.T) { synctest.Test(t, testBandwidthOfAllTogether) }

func testBandwidthOfAllTogether(t *testing.T) {
	const limit, time0 = 4 << 20, 500 * time.Millisecond
	b := Limit{bits: 8 * limit}
	memory, disks := b.Share(), b.Share()
	took := func(shares ...*pace.Share) (sums []int, all int) {
		ctx, end := context.WithTimeout(t.Context(), time0)
		defer end()
		sums = make([]int, len(shares))
		var running sync.WaitGroup
		for i, s := range shares {
			running.Go(func() {
				for n, err := s.Take(ctx, 32<<10); err == nil; n, err = s.Take(ctx, 32<<10) {
					sums[i] += n
				}
			})
		}
		running.Wait()
		for _, n := range sums {
			all += n
		}
		return sums, all
	}
	most := int(limit * time0.Seconds() * 1.3)
	for _, shares := range [][]*pace.Share{{memory, disks}, {memory, memory, memory, memory, disks}, {memory}, {disks}} {
		sums, all := took(shares...)
		if all > most || all < most/2 {
			t.Errorf("%d streams took %d bytes, want about %d", len(shares), all, most)
		}
		if last := sums[len(sums)-1]; last < all*2/5 {
			t.Errorf("%d streams took %v, the last is the disks' or alone", len(shares), sums)
		}
	}
}

// TestBandwidthChanges: a limit holds from now on, less what QEMU's own connection has of it.
func TestBandwidthChanges(t *testing.T) {
	b := Limit{bits: 800}
	s := b.Share()
	for _, step := range []struct {
		what string
		do   func()
		want int64
	}{
		{"at first", func() {}, 100},
		{"after a change", func() { b.Set(1600) }, 200},
		{"a part is QEMU's", func() { b.KeepApart(150) }, 50},
		{"QEMU has more than all", func() { b.KeepApart(300) }, 1},
		{"nothing is QEMU's", func() { b.KeepApart(0) }, 200},
		{"the least limit", func() { b.Set(1) }, 1},
		{"no limit", func() { b.Set(0) }, 0},
		{"none, and a part is QEMU's", func() { b.KeepApart(150) }, 0},
	} {
		if step.do(); s.Rate() != step.want {
			t.Errorf("%s: %d bytes/s, want %d", step.what, s.Rate(), step.want)
		}
	}
}

// TestGivesWay: for how long a migration gave way is told as it ends; a change of what it keeps meanwhile is no end.
func TestGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Limit{bits: 800}
		for _, step := range []struct {
			rests   time.Duration
			bits    int64
			gave    time.Duration
			changed bool
		}{
			{time.Second, 0, 0, false}, {time.Second, 80, 0, true}, {2 * time.Second, 80, 0, false}, {3 * time.Second, 40, 0, true},
			{time.Second, 0, 6 * time.Second, true}, {time.Second, 0, 0, false}, {time.Second, 1600, 0, true}, {4 * time.Second, 0, 4 * time.Second, true},
		} {
			time.Sleep(step.rests)
			if gave, changed := b.GiveWay(step.bits); gave != step.gave || changed != step.changed {
				t.Errorf("%+v: gave way for %v, changed %v", step, gave, changed)
			}
			now := b.GivesWay()
			if most := step.bits; now != (most > 0) || most == 0 && b.Bytes() != 100 || most > 0 && b.Bytes() != min(100, most/8) {
				t.Errorf("%+v: gives way %v; %d bytes/s", step, now, b.Bytes())
			}
		}
		if b.Bits() != 800 {
			t.Errorf("%d bit/s were set", b.Bits())
		}
	})
}
