package pipe

import (
	"io"
	"net"
	"sync"
)

// queue is bytes in order, from whoever receives them to whoever reads.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	parts   [][]byte
	bytes   int
	over    bool  // nothing more comes
	err     error // why, where that was no end of file
}

func newQueue() *queue {
	q := &queue{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// push adds a part, which it keeps. It waits while too much is there.
func (q *queue) push(part []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes > mostQueued && !q.over {
		q.changed.Wait()
	}
	if q.over {
		return net.ErrClosed
	}
	if len(part) > 0 {
		q.parts = append(q.parts, part)
		q.bytes += len(part)
		q.changed.Broadcast()
	}
	return nil
}

// end says that nothing more comes; the first one counts.
func (q *queue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.over {
		q.over, q.err = true, err
		q.changed.Broadcast()
	}
}

// ended says whether all that came has been read, up to an end of file.
func (q *queue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.over && q.err == nil && q.bytes == 0
}

func (q *queue) read(p []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.bytes == 0 && !q.over {
		q.changed.Wait()
	}
	if q.bytes == 0 {
		if q.err != nil {
			return 0, q.err
		}
		return 0, io.EOF
	}
	for n < len(p) && q.bytes > 0 {
		took := copy(p[n:], q.parts[0])
		n, q.bytes = n+took, q.bytes-took
		if q.parts[0] = q.parts[0][took:]; len(q.parts[0]) == 0 {
			q.parts[0] = nil
			q.parts = q.parts[1:]
		}
	}
	q.changed.Broadcast()
	return n, nil
}
