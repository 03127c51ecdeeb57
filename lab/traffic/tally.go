package traffic

import (
	"slices"
	"sync"
)

// mostRTTs bounds the round trips that a flow keeps; then it keeps every second.
const mostRTTs = 1 << 18

// tally counts what a flow delivered. Its methods may be called at the same time.
type tally struct {
	mu sync.Mutex

	bytes, records, lost, repeated, corrupt int64

	buckets buckets
	rtts    []RTT
	every   int // one round trip in so many is kept
	skipped int

	// since the last sample:
	gap        int64
	recent     []int64 // round trips, µs
	lastBytes  int64
	lastSample int64

	kernelRTT  int64 // µs; the sending side's, 0 unknown
	kernelAt   int64 // when that was told: it is as good for fresh
	kernelRTTs []RTT // one per sample
}

func newTally(start int64) *tally {
	return &tally{buckets: buckets{start: start}, every: 1, lastSample: start}
}

// record notes the arrival of record number, next being the one expected, and
// returns the one expected after it.
func (t *tally) record(w *waits, next, number uint64, size int, at int64, bad bool) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bad {
		t.corrupt++
	}
	switch {
	case number < next:
		t.repeated++
		return next
	case number > next:
		t.lost += int64(number - next)
	}
	t.gap = max(t.gap, w.arrive(at))
	t.bytes += int64(size)
	t.records++
	t.buckets.add(at, size)
	return number + 1
}

// garbage notes bytes that belonged to no record.
func (t *tally) garbage() {
	t.mu.Lock()
	t.corrupt++
	t.mu.Unlock()
}

// roundTrip notes one, in ns, that ended at a time.
func (t *tally) roundTrip(at, length int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.recent) < 4096 {
		t.recent = append(t.recent, length/1000)
	}
	if t.skipped++; t.skipped < t.every {
		return
	}
	t.skipped = 0
	t.rtts = append(t.rtts, RTT{Time: at, Micro: length / 1000})
	if len(t.rtts) < mostRTTs {
		return
	}
	half := t.rtts[:0]
	for i := 0; i < len(t.rtts); i += 2 {
		half = append(half, t.rtts[i])
	}
	t.rtts = half
	t.every *= 2
}

// kernelTold notes the kernel's round trip, µs; 0: it tells none.
func (t *tally) kernelTold(at, rtt int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kernelRTT, t.kernelAt = rtt, at
}

// sample fills in what was counted and begins the next interval. unpaced: see Flow.unpaced.
func (t *tally) sample(s *Sample, at int64, unpaced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Bytes, s.Records, s.Lost, s.Repeated, s.Corrupt = t.bytes, t.records, t.lost, t.repeated, t.corrupt
	if d := at - t.lastSample; d > 0 {
		s.Mbps = float64(t.bytes-t.lastBytes) * 8e3 / float64(d)
	}
	s.Gap = t.gap
	if len(t.recent) > 0 {
		slices.Sort(t.recent)
		s.StreamRTT = ms(t.recent[len(t.recent)/2])
	}
	if t.kernelRTT > 0 && at-t.kernelAt < int64(fresh) {
		s.KernelRTT = ms(t.kernelRTT)
		if len(t.kernelRTTs) < mostRTTs {
			t.kernelRTTs = append(t.kernelRTTs, RTT{Time: at, Micro: t.kernelRTT})
		}
	}
	s.RTT = s.StreamRTT
	if unpaced {
		s.RTT = s.KernelRTT
	}
	t.gap, t.recent, t.lastBytes, t.lastSample = 0, t.recent[:0], t.bytes, at
}

// result fills in the totals and series.
func (t *tally) result(r *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Bytes, r.Records, r.Lost, r.Repeated, r.Corrupt = t.bytes, t.records, t.lost, t.repeated, t.corrupt
	r.Start = t.buckets.start
	r.Buckets, r.Wide = slices.Clone(t.buckets.bytes), t.buckets.wide
	r.RTTs, r.KernelRTTs = slices.Clone(t.rtts), slices.Clone(t.kernelRTTs)
}

func ms(micro int64) *float64 {
	v := float64(micro) / 1000
	return &v
}
