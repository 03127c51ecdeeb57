package paths

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestFramesWithoutBytes: they are bounded as well, also urgent ones, while no path works.
func TestFramesWithoutBytes(t *testing.T) {
	for name, urgent := range map[string]bool{"urgent": true, "not urgent": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := newLink("a", time.Millisecond, 0)
				l.broken = true
				w := newWorld(t, l)
				defer w.close()
				within, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for n := uint64(1); n <= mostFrames; n++ {
					if err := w.s.Send(within, n, nil, urgent); err != nil {
						t.Fatal(err)
					}
				}
				for _, urgent := range []bool{urgent, !urgent} {
					if err := w.s.Send(within, mostFrames+1, nil, urgent); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("urgent %v: one more than %d frames: %v", urgent, mostFrames, err)
					}
				}
			})
		})
	}
}

// rawLane is one of a source that does what it likes; served gets what the Receiver makes of it.
func rawLane(t *testing.T, r *Receiver, path string, served chan<- error) net.Conn {
	here, there := net.Pipe()
	go func() { served <- r.Serve(context.Background(), there) }()
	hello := wire.Hello{Lowest: wire.Oldest, Highest: wire.Version, Migration: identity.Migration, Key: identity.Key, Path: path}
	here.Write(wire.AppendHello(nil, hello)) //nolint:errcheck // it may be refused
	go io.Copy(io.Discard, here)             //nolint:errcheck // as above
	t.Cleanup(func() { here.Close() })
	return here
}

// TestLanesAreBounded: a source may open so many, and name so many paths, and no more.
func TestLanesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity})
		defer r.Close()
		served := make(chan error, 3*mostLanes)
		for range mostLanes {
			rawLane(t, r, "a", served)
		}
		time.Sleep(time.Millisecond)
		rawLane(t, r, "a", served)
		if err := <-served; err == nil || !strings.Contains(err.Error(), "lanes at a time") {
			t.Errorf("one lane too many: %v", err)
		}
		time.Sleep(2 * Silence) // they have not spoken
		for n := range mostLanes {
			rawLane(t, r, fmt.Sprint("path ", n), served).Close()
			time.Sleep(time.Millisecond)
		}
		if n := len(r.Stats().Paths); n > mostLanes {
			t.Errorf("%d paths are known", n)
		}
		rawLane(t, r, "a", served)
		time.Sleep(time.Millisecond)
		if n := r.Stats().LanesLive; n != 1 {
			t.Errorf("%d lanes live, of a path that was known before", n)
		}
	})
}

// TestMissesThatNobodyHears: a source that sends on and on what cannot be decoded, and takes no word of it, is given up.
func TestMissesThatNobodyHears(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity, Frame: func(uint64, []byte) ([]uint64, error) {
			return make([]uint64, wire.MaxPages), nil
		}})
		defer r.Close()
		lane := rawLane(t, r, "a", make(chan error, 1))
		for n := range uint64(2 * mostUnheard / (8 * wire.MaxPages)) {
			if _, err := lane.Write(wire.AppendFrame(nil, n+1, nil)); err != nil {
				break
			}
		}
		time.Sleep(Silence / 2)
		if s := r.Stats(); s.Controls > mostUnheard+1<<20 {
			t.Errorf("%d bytes wait for it", s.Controls)
		}
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "does not hear") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestGapsAreBounded: a source that leaves out each other frame is given up; backwards, to keep account of it would
// take longer with each.
func TestGapsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity, Frame: func(uint64, []byte) ([]uint64, error) { return nil, nil }})
		defer r.Close()
		r.mu.Lock()
		for n := range uint64(mostGaps - 1) {
			r.got.add(2*n+10, 2*n+10, func(uint64) {})
		}
		r.mu.Unlock()
		lane := rawLane(t, r, "a", make(chan error, 1))
		for _, number := range []uint64{8, 6, 4} { // the last is one too many
			lane.Write(wire.AppendFrame(nil, number, nil)) //nolint:errcheck // it may be refused
		}
		time.Sleep(Silence / 2)
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "are missing between") {
			t.Errorf("it ended with %v", err)
		}
		if n := r.Stats().Frames; n != 2 {
			t.Errorf("%d frames were taken", n)
		}
	})
}

// TestControlsComeAgain: what lanes bring again of controls, as they do where others died, is handled once, and nothing
// of it is kept.
func TestControlsComeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		handled := map[byte]int{}
		r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity, Control: func(_ wire.Topic, body []byte) error {
			mu.Lock()
			defer mu.Unlock()
			handled[body[0]]++
			return nil
		}})
		defer r.Close()
		lane := rawLane(t, r, "a", make(chan error, 1))
		body := make([]byte, wire.MaxBody)
		const many = mostControls/wire.MaxBody + 2
		bring := func(number byte) {
			body[0] = number
			lane.Write(wire.AppendControl(nil, uint64(number), wire.TopicRaw, body)) //nolint:errcheck // it may be refused
		}
		for range 2 {
			for n := range byte(many) {
				bring(n + 1)
			}
		}
		for range many {
			bring(many + 2) // the one before it does not come
		}
		bring(many + 1)
		time.Sleep(Silence / 2)
		mu.Lock()
		defer mu.Unlock()
		for n := range byte(many + 2) {
			if handled[n+1] != 1 {
				t.Errorf("control %d was handled %d times", n+1, handled[n+1])
			}
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
		if n := r.Stats().LanesLive; n != 1 {
			t.Errorf("%d lanes live", n)
		}
	})
}
