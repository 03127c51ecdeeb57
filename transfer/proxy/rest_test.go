package proxy_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"
)

// TestLastRoundsRest: a guest that always writes to the same few pages is not read as fast as its
// QEMU can repeat them, until the stop phase.
func TestLastRoundsRest(t *testing.T) {
	const rest, rounds = 20 * time.Millisecond, 8 // that are measured together
	const hot = 100                               // pages of a round: twice what QEMU's socket holds, so that it waits where we rest
	const half = rounds * rest / 2                // of what they take where each rests
	f := newFakes(t)
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	written := uint64(0)
	repeat := func(pages uint64, times int) time.Duration {
		begun := time.Now()
		for range times {
			for page := range pages {
				written++
				f.from.memory[page] = binary.NativeEndian.AppendUint64(bytes.Repeat([]byte("guest"), 4096/5)[:4088], written)
				if err := f.from.w.Page(page, f.from.memory[page]); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.from.w.EndPart(); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(begun)
	}
	read := func(tries int) time.Duration { // in the least time, of a machine that is busy with other things at times
		least := time.Duration(math.MaxInt64)
		for n := 0; n < tries && least > half; n++ {
			least = min(least, repeat(hot, rounds))
		}
		return least
	}
	repeat(fakePages, 3)
	if took := read(5); took < half {
		t.Errorf("%d rounds of the same pages were read in %v, want %v at least", rounds, took, half)
	}
	f.src.AllowSwitchover()
	f.src.Hurry()
	if took := read(50); took > half {
		t.Errorf("%d rounds were read in %v at the best in the stop phase, want %v at most", rounds, took, half)
	}
	if err := f.from.w.End(); err != nil {
		t.Fatal(err)
	}
	if err := f.from.w.Tail(fakeTail()); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
}
