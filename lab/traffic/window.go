package traffic

import (
	"slices"
	"time"
)

// Gap is the longest time that one connection waited between two records,
// among the waits that overlap [from, to), unix ns; each counts whole. A
// connection that delivered nothing more waits until the flow's end. Waits too
// short to be kept count as the shortest that is. It is false where nothing is
// known: see GapUnknown, or where no record had come by then.
func (r *Result) Gap(from, to int64) (time.Duration, bool) {
	if r.GapUnknown != "" || to <= from || to <= r.Start || from >= r.End {
		return 0, false
	}
	var longest int64
	for _, c := range r.Connections {
		if c.Begun == 0 || c.Begun >= to {
			continue
		}
		longest = max(longest, c.MinWait)
		first, _ := slices.BinarySearchFunc(c.Waits, from, func(w Wait, t int64) int {
			if w.From+w.Length > t {
				return 1
			}
			return -1
		})
		for _, w := range c.Waits[first:] {
			if w.From >= to {
				break
			}
			longest = max(longest, w.Length)
		}
	}
	return time.Duration(longest), longest > 0
}

// Mbps is the payload delivered in [from, to), in Mbit/s of that time; it is
// false where the flow did not run in the whole window.
func (r *Result) Mbps(from, to int64) (float64, bool) {
	if len(r.Buckets) == 0 || to <= from || from < r.Start-int64(Bucket) || to > r.End+int64(Bucket) {
		return 0, false
	}
	var bytes float64
	width := max(r.Wide, 1) * int64(Bucket)
	for i := max(0, (from-r.Start)/width); i < int64(len(r.Buckets)); i++ {
		begin := r.Start + i*width
		if begin >= to {
			break
		}
		part := min(to, begin+width) - max(from, begin)
		bytes += float64(r.Buckets[i]) * float64(part) / float64(width)
	}
	return bytes * 8 / 1e6 / time.Duration(to-from).Seconds(), true
}

// RTT is the median round trip of the path in [from, to), as well as this flow
// can tell: StreamRTT, but for downloads and uploads as fast as they go, whose
// pings wait behind megabytes of their own send buffer, KernelRTT. It is false
// if there was none.
func (r *Result) RTT(from, to int64) (time.Duration, bool) {
	if r.Flow.unpaced() {
		return r.KernelRTT(from, to)
	}
	return r.StreamRTT(from, to)
}

// StreamRTT is the median of what the application saw in [from, to): pings in
// the same stream, requests, or (udp) questions for the count.
func (r *Result) StreamRTT(from, to int64) (time.Duration, bool) {
	return medianRTT(r.RTTs, from, to)
}

// KernelRTT is the median of the kernel's smoothed round trips in [from, to),
// of the side that sends (KernelRTTs); path and queues, no buffers.
func (r *Result) KernelRTT(from, to int64) (time.Duration, bool) {
	return medianRTT(r.KernelRTTs, from, to)
}

func medianRTT(all []RTT, from, to int64) (time.Duration, bool) {
	var in []int64
	for _, s := range all {
		if s.Time >= from && s.Time < to {
			in = append(in, s.Micro)
		}
	}
	if len(in) == 0 {
		return 0, false
	}
	slices.Sort(in)
	return time.Duration(in[len(in)/2]) * time.Microsecond, true
}
