package proxy_test

import (
	"math/rand/v2"
	"testing"

	"godwit/transfer/proxy"
	"godwit/transfer/qstream"
)

// TestStoppedReadsAsThereIsRoom: memory of a guest that stands still for all of it waits in QEMU, not on a disk, and
// arrives whole; of one that was copied before nothing waits.
func TestStoppedReadsAsThereIsRoom(t *testing.T) {
	for stopped, carry := range map[bool]int64{true: 4 << 20, false: 64 << 10} {
		f := newFakesWith(t, proxy.DestinationConfig{}, proxy.SourceConfig{Stopped: stopped})
		f.limit.Set(carry)
		f.src.AllowSwitchover()
		f.src.Hurry()
		if err := f.from.w.Begin(); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for page := range uint64(fakePages) {
			data := make([]byte, 4096)
			noise(rng, data)
			f.from.memory[page] = data
			if err := f.from.w.Page(page, data); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.from.w.Command(qstream.SwitchoverStart, nil); err != nil {
			t.Fatal(err)
		}
		if spilled := f.src.Stats().SpilledMost; (spilled > 0) == stopped {
			t.Errorf("stopped %v: %d bytes went to the disk before END", stopped, spilled)
		}
		f.limit.Set(0)
		if err := f.from.w.End(); err != nil {
			t.Fatal(err)
		}
		if err := f.from.w.Tail(fakeTail()); err != nil {
			t.Fatal(err)
		}
		f.settle(t)
	}
}
