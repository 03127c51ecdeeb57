package proxy_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"godwit/transfer/proxy"
)

// TestEndWaitsForNoPath: from END on QEMU holds its big lock, and answers nobody, until all of it is taken. That waits for
// no path, also where what comes behind END is all of a guest that stands still.
func TestEndWaitsForNoPath(t *testing.T) {
	for name, c := range map[string]struct{ stopped, hurried bool }{
		"after a copy":            {false, true},
		"all of a stopped guest":  {true, true},
		"before anybody stops it": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakesWith(t, proxy.DestinationConfig{}, proxy.SourceConfig{Stopped: c.stopped})
			rng := rand.New(rand.NewPCG(1, 3))
			if err := f.from.w.Begin(); err != nil {
				t.Fatal(err)
			}
			f.from.write(t, rng, 0)
			if err := f.from.w.EndPart(); err != nil {
				t.Fatal(err)
			}
			f.until(t, func() bool { return f.src.Stats().Put == 1 })
			for _, u := range f.uplinks {
				u.set(true)
			}
			f.src.AllowSwitchover()
			if c.hurried {
				f.src.Hurry()
			}
			f.from.conn.SetWriteDeadline(time.Now().Add(hang)) //nolint:errcheck // it does not fail
			if _, err := f.from.conn.Write(append(f.from.end(rng), fakeTail()...)); err != nil {
				t.Fatalf("%v: %+v", err, f.src.Stats())
			}
			f.until(t, func() bool { return f.src.Stats().Tail > 0 })
			for _, u := range f.uplinks {
				u.set(false)
			}
			f.settle(t)
			if !bytes.Equal(f.to.tail, fakeTail()) {
				t.Errorf("tail of %d bytes, not %d", len(f.to.tail), len(fakeTail()))
			}
		})
	}
}

// end is END with all pages in it, of noise.
func (f *fakeSource) end(rng *rand.Rand) []byte {
	out := []byte("\x03\x00\x00\x00\x02")
	for page := range f.memory {
		data, block, first := make([]byte, 4096), "\x03ram", 0
		if page >= fakePages-200 {
			block, first = "\x03vga", fakePages-200
		}
		noise(rng, data)
		f.memory[page] = data
		out = append(append(append(out, word(uint64(page-first)<<12|8)...), block...), data...) //nolint:gosec // not negative
	}
	return append(append(out, word(0x10)...), "\x7e\x00\x00\x00\x02"...)
}
