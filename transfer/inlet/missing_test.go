package inlet_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"godwit/internal/need"
	"godwit/transfer/inlet"
	"godwit/transfer/wire"
)

// TestMissingByRuns: runs of any length and place are the pages that they say; one that has a page which is there
// already names it.
func TestMissingByRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 300
		m, want := inlet.NewMissing(total), map[uint64]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "runs") {
			first := rapid.Uint64Range(0, total-1).Draw(t, "first")
			run := wire.Run{First: first, Count: rapid.Uint64Range(0, total-first).Draw(t, "count")}
			twice := ""
			for n := run.First; n < run.First+run.Count && twice == ""; n++ {
				if want[n] {
					twice = fmt.Sprintf("page %d is missing twice", n)
				}
			}
			err := m.Add([]wire.Run{run})
			if twice != "" {
				if err == nil || !strings.Contains(err.Error(), twice) {
					t.Fatalf("%v, want %s", err, twice)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for n := run.First; n < run.First+run.Count; n++ {
				want[n] = true
			}
		}
		for n := range uint64(total) {
			if m.Has(n) != want[n] {
				t.Fatalf("page %d: %v", n, m.Has(n))
			}
		}
		if m.Left() != uint64(len(want)) {
			t.Fatalf("%d, want %d", m.Left(), len(want))
		}
	})
}

// TestMissingOfALargeGuest: the guest stands still until what follows it is noted, which takes about as long as to list
// it, by words.
func TestMissingOfALargeGuest(t *testing.T) {
	const total = 16 << 20 // pages: 64 GiB
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	noted, listed := time.Hour, time.Hour
	for range 5 {
		m, begun := inlet.NewMissing(total), need.Processor(t)
		if err := m.Add([]wire.Run{{First: 1, Count: total - 2}}); err != nil || m.Left() != total-2 {
			t.Fatal(m.Left(), err)
		}
		now := need.Processor(t)
		noted, begun = min(noted, now-begun), now
		if len(m.Runs()) != 1 {
			t.Fatal(m.Runs())
		}
		listed = min(listed, need.Processor(t)-begun)
	}
	if noted > 40*listed {
		t.Errorf("noted in %v, listed in %v", noted, listed)
	}
}
