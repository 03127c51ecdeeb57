package proxy

import (
	"sync/atomic"
	"time"

	"godwit/transfer/pages"
)

// Memory that is kept for a guest's return goes to a disk, which may be slow, or hang. A thread of its own writes it:
// reading waits for that while the guest runs, as it does for lanes, but not for long, and not at all once the guest is
// to be stopped.

const (
	keepChunk  = 64 // pages that are handed over at once: each wakes that thread
	keepChunks = 8  // that wait at most
	// keepMost is for how long nothing may go to the disk. Then nothing is kept.
	keepMost = time.Second
)

// keeping is a visit.Writer.
type keeping interface {
	Write(page uint64, data []byte) error
	Close() error
}

// keptPages are some pages, one behind the other.
type keptPages struct {
	numbers []uint64
	data    []byte
}

// keeper hands pages to a disk. It is for one goroutine.
type keeper struct {
	to      keeping
	queue   chan *keptPages // has room for all that there are
	free    chan *keptPages
	current *keptPages // not handed over yet; nil: none
	closed  bool       // nothing is handed over any more
	gaveUp  atomic.Bool
	ended   chan struct{} // closed: nothing is written any more
}

// newKeeper begins to write. enter is called by what does so; what it returns when that ends.
func newKeeper(to keeping, enter func() (leave func())) *keeper {
	k := &keeper{to: to, queue: make(chan *keptPages, keepChunks), free: make(chan *keptPages, keepChunks), ended: make(chan struct{})}
	for range keepChunks {
		k.free <- &keptPages{numbers: make([]uint64, 0, keepChunk), data: make([]byte, 0, keepChunk*pages.Size)}
	}
	go func() {
		defer close(k.ended)
		defer enter()()
		for some := range k.queue {
			if k.gaveUp.Load() || !k.write(some) {
				k.to.Close() //nolint:errcheck // a full disk: its room is for others
				return
			}
			some.numbers, some.data = some.numbers[:0], some.data[:0]
			k.free <- some
		}
	}()
	return k
}

func (k *keeper) write(some *keptPages) bool {
	for i, number := range some.numbers {
		if k.to.Write(number, some.data[i*pages.Size:(i+1)*pages.Size]) != nil {
			return false
		}
	}
	return true
}

// put keeps a page, unless the disk takes none until done is closed. It gives up a disk that fails, or hangs.
func (k *keeper) put(number uint64, data []byte, done <-chan struct{}) {
	if k.closed {
		return
	}
	if k.current == nil {
		select {
		case k.current = <-k.free:
		default:
			if k.current = k.await(done); k.current == nil {
				return
			}
		}
	}
	k.current.numbers, k.current.data = append(k.current.numbers, number), append(k.current.data, data...)
	if len(k.current.numbers) == keepChunk {
		k.queue <- k.current
		k.current = nil
	}
}

// await waits for room; nil: there is none.
func (k *keeper) await(done <-chan struct{}) *keptPages {
	patience := time.NewTimer(keepMost)
	defer patience.Stop()
	select {
	case some := <-k.free:
		return some
	case <-done:
		return nil
	case <-k.ended:
	case <-patience.C:
	}
	k.gaveUp.Store(true)
	k.close()
	return nil
}

// close ends the handing over.
func (k *keeper) close() {
	if !k.closed {
		k.closed = true
		close(k.queue)
	}
}

// end has the disk take what was handed over, and waits for that; nil has nothing.
func (k *keeper) end() {
	if k == nil {
		return
	}
	if k.current != nil && !k.closed {
		k.queue <- k.current
	}
	k.close()
	<-k.ended
}
