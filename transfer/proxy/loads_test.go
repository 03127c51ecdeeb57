package proxy_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/inlet"
	"godwit/transfer/proxy"
)

// ringsTail is a tail with a virtio device.
func ringsTail(avail, used uint64) []byte {
	rings := make([]byte, 1024*16)
	binary.BigEndian.PutUint64(rings, avail)
	binary.BigEndian.PutUint64(rings[8:], used)
	return slices.Concat([]byte("\x04noise\x05\x11virtio/virtqueues\x00\x00\x00\x01"), rings, fakeTail())
}

// TestLoadsAreThere: what the destination's QEMU reads as it loads the devices is there by then, as the guest wrote it
// last, where the rest of memory follows the guest.
func TestLoadsAreThere(t *testing.T) {
	dir := t.TempDir()
	entrance, err := socket.Listen(filepath.Join(dir, "inlet"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inlet.Serve(entrance) }()
	loads := []uint64{699, 700, 905}
	guest := &follower{blocks: fakePrologue(t).Blocks, missing: map[uint64]bool{}, loads: loads}
	f := newFakesTo(t, 0, guest.load, proxy.DestinationConfig{Inlet: filepath.Join(dir, "inlet")}, proxy.SourceConfig{Postcopy: true})
	f.limit.Set(1 << 20)
	rng := rand.New(rand.NewPCG(1, 7))
	write := func(page uint64) {
		f.from.memory[page] = make([]byte, 4096)
		noise(rng, f.from.memory[page])
		if err := f.from.w.Page(page, f.from.memory[page]); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	for page := range uint64(fakePages) { // less than the buffer takes, and some seconds of the link
		if page%4 == 0 || page >= fakePages-200 {
			write(page)
		}
	}
	if err := f.from.w.EndPart(); err != nil {
		t.Fatal(err)
	}
	f.src.AllowSwitchover()
	f.src.Drain(t.Context())
	if !f.src.PostCopy() {
		t.Fatal("the rest cannot follow")
	}
	for _, page := range loads {
		write(page)
	}
	if err := errors.Join(f.from.w.End(), f.from.w.Tail(ringsTail(700*4096, 905*4096+100))); err != nil {
		t.Fatal(err)
	}
	f.limit.Set(0)
	select {
	case <-f.to.done:
		for page := range guest.memory {
			if guest.memory[page] == nil {
				guest.memory[page] = f.from.memory[page] // neither wrote it
			}
		}
		f.to.memory = guest.memory
	case <-time.After(2 * hang):
	}
	f.settle(t)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
