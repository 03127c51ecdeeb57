package pipe

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var id = paths.Identity{Migration: "m-1/disk0", Key: wire.Key{1}}

// trip is how long what is sent takes to the other end, in virtual time.
const trip = 2 * time.Millisecond

// inBubble has virtual time, in which nothing takes long because the machine is busy.
func inBubble(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// world is a pipe over so many paths, and what stands between its ends.
type world struct {
	source *Source
	there  *Destination

	mu    sync.Mutex
	lanes map[*connection]bool
	made  int
	cut   bool // nobody is answered
	deaf  int  // nothing comes back over this lane, as where its path was cut without a word; the first is 1
}

// connection is one of a lane, and its other end.
type connection struct {
	net.Conn
	there net.Conn
	lane  int
}

func newWorld(t *testing.T, lanes int) *world {
	t.Helper()
	return newWorldWithin(t, lanes, nil)
}

// newWorldWithin has a limit of bandwidth.
func newWorldWithin(t *testing.T, lanes int, limit *pace.Share) *world {
	t.Helper()
	w := &world{lanes: map[*connection]bool{}}
	w.there = Accept(t.Context(), id)
	var running sync.WaitGroup
	var all []paths.Lane
	for n := range lanes {
		all = append(all, paths.Lane{Path: "way", Open: func(context.Context) (net.Conn, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cut {
				return nil, errors.New("the way is cut")
			}
			here, near := net.Pipe()
			far, there := net.Pipe()
			c := &connection{here, there, n + 1}
			w.lanes[c] = true
			w.made++
			running.Go(func() { carry(far, near, func() bool { return false }) })
			running.Go(func() { carry(near, far, func() bool { return w.isDeaf(c.lane) }) })
			running.Go(func() { w.there.Serve(t.Context(), there) }) //nolint:errcheck // lanes die in these tests
			return here, nil
		}})
	}
	w.source = Open(t.Context(), id, all, limit)
	t.Cleanup(func() {
		w.source.Close()
		w.there.Close()
		w.kill(true)
		running.Wait()
	})
	return w
}

func (w *world) isDeaf(lane int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf == lane
}

// carry passes on what is read, a trip later, but for what is lost.
func carry(to, from net.Conn, lost func() bool) {
	type parcel struct {
		data []byte
		due  time.Time
	}
	way := make(chan parcel, 1<<10)
	var writing sync.WaitGroup
	writing.Go(func() {
		defer from.Close()
		defer to.Close()
		for p := range way {
			time.Sleep(time.Until(p.due))
			if lost() {
				continue
			}
			if _, err := to.Write(p.data); err != nil {
				from.Close()
			}
		}
	})
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		if n > 0 {
			way <- parcel{bytes.Clone(buf[:n]), time.Now().Add(trip)}
		}
		if err != nil {
			break
		}
	}
	close(way)
	writing.Wait()
}

// kill ends some lane, or all; what was on its way is lost.
func (w *world) kill(all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.lanes {
		c.Close()
		c.there.Close()
		delete(w.lanes, c)
		if !all {
			return
		}
	}
}

// live waits until so many lanes work.
func (w *world) live(lanes int) {
	for w.source.Stats().LanesLive < lanes {
		time.Sleep(time.Millisecond)
	}
}
