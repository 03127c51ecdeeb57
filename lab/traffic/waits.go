package traffic

import "time"

const (
	// shortestKept is the shortest wait that is kept at first.
	shortestKept = 3 * time.Millisecond
	// mostWaits and fewestWaits bound what a flow and each of its connections keep.
	mostWaits   = 1 << 20
	fewestWaits = 1 << 10
)

// waits keeps the times in which a connection delivered nothing. When it holds
// limit of them it forgets the shorter ones, and says up to which length.
type waits struct {
	all   []Wait
	min   int64 // ns
	limit int
	first int64 // the first record, unix ns; 0 before it
	last  int64 // the last one, likewise
}

func newWaits(connections int) *waits {
	return &waits{min: int64(shortestKept), limit: max(fewestWaits, mostWaits/connections)}
}

// arrive notes a record and returns how long it was waited for.
func (w *waits) arrive(now int64) int64 {
	if w.last == 0 {
		w.first, w.last = now, now
		return 0
	}
	length := now - w.last
	if length >= w.min {
		w.all = append(w.all, Wait{From: w.last, Length: length})
		for len(w.all) >= w.limit {
			w.thin()
		}
	}
	w.last = now
	return length
}

// end counts the time since the last record as a wait, where it is one.
func (w *waits) end(now int64) {
	if w.last != 0 && now-w.last >= w.min {
		w.all = append(w.all, Wait{From: w.last, Length: now - w.last})
	}
}

// describe fills in when a connection's records came.
func (w *waits) describe(c *Connection) {
	c.Waits, c.MinWait, c.Begun, c.Last = w.all, w.min, w.first, w.last
}

func (w *waits) thin() {
	w.min *= 2
	kept := w.all[:0]
	for _, x := range w.all {
		if x.Length >= w.min {
			kept = append(kept, x)
		}
	}
	w.all = kept
}

// buckets count bytes per Bucket of time since start; of flows that run for long, per two of
// them, four, and so on.
type buckets struct {
	start int64
	wide  int64 // in Buckets; 0 is 1
	bytes []uint32
}

// mostBuckets are two hours of the narrow ones.
const mostBuckets = 2 * 3600 * 100

func (b *buckets) width() int64 { return max(b.wide, 1) * int64(Bucket) }

func (b *buckets) add(now int64, n int) {
	if now < b.start {
		return
	}
	for (now-b.start)/b.width() >= mostBuckets {
		b.widen()
	}
	i := (now - b.start) / b.width()
	for int64(len(b.bytes)) <= i {
		b.bytes = append(b.bytes, 0)
	}
	b.bytes[i] += uint32(n)
}

// widen makes each bucket twice as wide.
func (b *buckets) widen() {
	b.wide = 2 * max(b.wide, 1)
	for i, n := range b.bytes {
		if i%2 == 0 {
			b.bytes[i/2] = n
		} else {
			b.bytes[i/2] += n
		}
	}
	b.bytes = b.bytes[:(len(b.bytes)+1)/2]
}
