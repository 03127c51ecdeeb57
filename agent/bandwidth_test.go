package agent

import (
	"context"
	"sync"
	"testing"
	"time"

	"godwit/migration"
	"godwit/transfer/pace"
)

// TestBandwidthOfAllTogether: memory and disks have one limit, evenly, and each has all of it where the other rests.
func TestBandwidthOfAllTogether(t *testing.T) {
	const limit, time0 = 4 << 20, 500 * time.Millisecond
	b := bandwidth{bits: 8 * limit}
	memory, disks := b.share(), b.share()
	took := func(shares ...*pace.Share) (sums []int, all int) {
		ctx, end := context.WithTimeout(t.Context(), time0)
		defer end()
		sums = make([]int, len(shares))
		var running sync.WaitGroup
		for i, s := range shares {
			running.Go(func() {
				for n := s.Piece(32 << 10); s.Take(ctx, n) == nil; {
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
	b := bandwidth{bits: 800}
	s := b.share()
	for _, step := range []struct {
		what string
		do   func()
		want int64
	}{
		{"at first", func() {}, 100},
		{"after a change", func() { b.set(1600) }, 200},
		{"a part is QEMU's", func() { b.keepApart(150) }, 50},
		{"QEMU has more than all", func() { b.keepApart(300) }, 1},
		{"nothing is QEMU's", func() { b.keepApart(0) }, 200},
		{"the least limit", func() { b.set(1) }, 1},
		{"no limit", func() { b.set(0) }, 0},
		{"none, and a part is QEMU's", func() { b.keepApart(150) }, 0},
	} {
		if step.do(); s.Rate() != step.want {
			t.Errorf("%s: %d bytes/s, want %d", step.what, s.Rate(), step.want)
		}
	}
}

func TestBufferOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		req migration.Request
		ok  bool
	}{
		"none":       {migration.Request{}, true},
		"some":       {migration.Request{Buffer: 8 << 20}, true},
		"too little": {migration.Request{Buffer: 4096}, false},
		"negative":   {migration.Request{Buffer: -1}, false},
		"of QEMU":    {migration.Request{Buffer: 8 << 20, Transfer: "qemu-tcp"}, false},
	} {
		c.req.Guest, c.req.To = "web", "rome"
		if err := CheckRequest(&c.req); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
