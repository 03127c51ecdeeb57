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
	last  int64 // the last record, unix ns; 0 before the first
}

func newWaits(connections int) *waits {
	return &waits{min: int64(shortestKept), limit: max(fewestWaits, mostWaits/connections)}
}

// arrive notes a record and returns how long it was waited for.
func (w *waits) arrive(now int64) int64 {
	if w.last == 0 {
		w.last = now
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

// buckets count bytes per Bucket of time since start.
type buckets struct {
	start int64
	bytes []uint32
}

// mostBuckets ends a series after two hours.
const mostBuckets = 2 * 3600 * 100

func (b *buckets) add(now int64, n int) {
	i := (now - b.start) / int64(Bucket)
	if i < 0 || i >= mostBuckets {
		return
	}
	for int64(len(b.bytes)) <= i {
		b.bytes = append(b.bytes, 0)
	}
	b.bytes[i] += uint32(n)
}
