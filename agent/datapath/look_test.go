package datapath

import (
	"testing"
	"time"

	"godwit/policy"
	"godwit/transfer/pages"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// TestWhatTheLanesHaveToCarry: pages count as they are coded; of a stream that is passed on as it is each byte does,
// those that were read and wait for a lane, and those in QEMU's socket.
func TestWhatTheLanesHaveToCarry(t *testing.T) {
	coded := proxy.Stats{Queue: 1000, Unread: 2 * pages.Size, PageBytes: 100}
	if got := toCarry(pages.Size, coded); got != 1300 {
		t.Errorf("pages: %d bytes", got)
	}
	coded.Opaque, coded.Raw = "dirty-bitmap", 8<<20
	if got, want := toCarry(500, coded), int64(8<<20+1000+500+2*pages.Size); got != want {
		t.Errorf("an opaque stream: %d bytes, want %d", got, want)
	}
}

// TestVersions: a page that QEMU says again as it was neither has to be sent nor was it.
func TestVersions(t *testing.T) {
	s := proxy.Stats{Progress: pages.Progress{Put: 150_000, Superseded: 20_000, Unchanged: 90_000, Waiting: 30_000, InFlight: 4000, Kept: 1000}}
	if read, sent := versions(s); read != 40_000 || sent != 7000 {
		t.Errorf("%d read, %d of them sent", read, sent)
	}
}

// TestDirtyRateOfALook: how much the guest writes is told by its pages, and by QEMU where nobody else knows these.
func TestDirtyRateOfALook(t *testing.T) {
	s, qemu := proxy.Stats{DirtyRate: 16e6}, vm.Progress{Rounds: 90, DirtyRate: 62e6}
	if got := Look(s, qemu, time.Second, &policy.Handling{}).DirtyRate; got != 16e6 {
		t.Errorf("its pages are known: %d", got)
	}
	s.Opaque = "vfio"
	if got := Look(s, qemu, time.Second, &policy.Handling{}).DirtyRate; got != 62e6 {
		t.Errorf("they are not: %d", got)
	}
}

// TestKeptShare: how much of what is left waits for the pause, wherever pages are; more than all that is left is all.
func TestKeptShare(t *testing.T) {
	for _, c := range []struct {
		kept, left uint64
		want       float64
	}{{0, 0, 0}, {0, 10, 0}, {5, 10, 0.5}, {10, 10, 1}, {11, 10, 1}} {
		if got := keptShare(c.kept, c.left); got != c.want {
			t.Errorf("%d of %d: %v", c.kept, c.left, got)
		}
	}
}
