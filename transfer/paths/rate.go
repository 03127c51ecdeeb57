package paths

import "time"

// estimate follows what one lane carries. Bytes, bytes per second.
type estimate struct {
	rate      float64 // 0: unknown
	expected  float64 // as configured; stands in for rate until that is known
	rtt       time.Duration
	rttAt     time.Time
	delivered int64 // bytes acknowledged on this lane
	at        time.Time
	inflight  int64 // bytes sent on it that are not acknowledged
}

// rttKept is how long a shortest round trip counts.
const rttKept = 10 * time.Second

func (e *estimate) sawRTT(rtt time.Duration, now time.Time) {
	if rtt <= 0 {
		return
	}
	if e.rtt == 0 || rtt < e.rtt || now.Sub(e.rttAt) > rttKept {
		e.rtt, e.rttAt = rtt, now
	}
}

// flight is one frame on one lane. It keeps what was delivered when it left, so that its
// acknowledgement tells a rate (as BBR counts delivery, draft-cardwell-iccrg-bbr 4.1.1).
type flight struct {
	frame     *frame
	lane      *lane
	left      time.Time
	eta       time.Time // when it should arrive; zero: unknown
	delivered int64
	at        time.Time
	idle      bool // the lane had nothing on its way: the sample may be too low
}

// sent notes that size bytes leave.
func (e *estimate) sent(f *flight, size int64, now time.Time) {
	f.left, f.idle = now, e.inflight == 0
	if f.idle || e.at.IsZero() {
		e.at = now
	}
	if d, ok := e.arrival(size); ok {
		f.eta = now.Add(d)
	}
	f.delivered, f.at = e.delivered, e.at
	e.inflight += size
}

// acked notes the acknowledgement of a frame that arrived first on this lane.
func (e *estimate) acked(f *flight, size int64, now time.Time) {
	e.inflight -= size
	e.delivered += size
	d := now.Sub(f.at).Seconds()
	e.at = now
	if d <= 0 {
		return
	}
	sample := float64(e.delivered-f.delivered) / d
	switch {
	case e.rate == 0:
		e.rate = sample
	case !f.idle || sample > e.rate:
		e.rate += (sample - e.rate) / 8
	}
}

// lost notes that a frame on this lane counts no more.
func (e *estimate) lost(size int64) { e.inflight -= size }

func (e *estimate) speed() float64 {
	if e.rate > 0 {
		return e.rate
	}
	return e.expected
}

// arrival is how long size more bytes would take to the other end.
func (e *estimate) arrival(size int64) (time.Duration, bool) {
	speed := e.speed()
	if speed <= 0 {
		return 0, false
	}
	waiting := max(0, float64(e.inflight)-speed*e.rtt.Seconds()) // the rest is on its way
	return e.rtt/2 + time.Duration((waiting+float64(size))/speed*float64(time.Second)), true
}
