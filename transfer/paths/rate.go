package paths

import "time"

// estimate follows what one lane can carry, not what it carries: a sender that has little to
// send (pages of zeros, unchanged ones, ones that the other end has) says nothing of its
// lanes. So a rate is what arrived in a time in which the lane was full throughout, and
// never falls by one in which it was not. Of a lane that never was full only a least is
// known. Bytes, bytes per second.
type estimate struct {
	rate      float64 // while it was full, or more if more arrived; 0: it never was full
	proved    float64 // the most that arrived before that; it may carry more
	expected  float64 // as configured; 0: unknown
	most      float64 // that it may send at all; 0: as much as it can
	rtt       time.Duration
	rttAt     time.Time
	shortest  time.Duration // the shortest round trip of all: without what waits in queues
	delivered int64         // bytes acknowledged on this lane since at
	at        time.Time
	inflight  int64         // bytes sent on it that are not acknowledged
	low       int64         // least of inflight since at
	hungry    bool          // it could have sent, and there was nothing, since the last frame
	dry       bool          // since at there was nothing so long that the kernel had sent all
	held      bool          // since at something was kept back because the lane was brimful
	least     time.Duration // the shortest round trip since at; 0: none
	squeeze   squeeze
	longer    longer
}

// squeeze is a rate that was lowered while the lane was held: it carries less, or its path has
// got longer.
type squeeze struct {
	before float64   // the rate that it had; 0: none was lowered
	until  time.Time // when what was under way then is there
}

// longer is a path that is taken to have got longer, as its round trips are. It may be that acknowledgements came late
// for a while: then what is under way since keeps them as long. So it is looked at again, more and more seldom.
type longer struct {
	was    time.Duration // the shortest round trip before; 0: it is not
	lookAt time.Time
	every  time.Duration // from one look to the next
}

// longerLeast is after how long it is looked at first.
const longerLeast = 5 * time.Second

// rttKept is how long a shortest round trip counts.
const rttKept = 10 * time.Second

func (e *estimate) sawRTT(rtt time.Duration, now time.Time) {
	if rtt <= 0 {
		return
	}
	if e.shortest == 0 || rtt < e.shortest {
		e.shortest = rtt
	}
	if e.least == 0 || rtt < e.least {
		e.least = rtt
	}
	if e.rtt == 0 || rtt < e.rtt || now.Sub(e.rttAt) > rttKept {
		e.rtt, e.rttAt = rtt, now
	}
}

// flight is one frame on one lane.
type flight struct {
	frame *frame
	lane  *lane
	eta   time.Time // when it should arrive; zero: unknown
	end   uint64    // of the bytes that its lane writes, how many there are up to its last; 0: unknown
}

// rateWindow is over how long a sample of the rate goes at least. Acknowledgements come in
// bunches where the other end gets its processor late: shorter ones would tell too much.
const rateWindow = 200 * time.Millisecond

// growing is how much more than before arrives on a connection that has not found yet what its path carries: its congestion
// window may double in each round trip. Samples of that are of the window, and no rate: whoever packs for a path of a
// hundredth keeps it waiting when it carries all.
const growing = 1.1

// leastSample is how many bytes tell a first rate in less time.
const leastSample = 256 << 10

// sent notes that size bytes leave.
func (e *estimate) sent(size int64, now time.Time) {
	if e.inflight == 0 && (e.dry || e.at.IsZero()) {
		e.begin(now)
	}
	e.inflight += size
}

// acked notes the acknowledgement of a frame that arrived first on this lane.
func (e *estimate) acked(size int64, now time.Time) {
	e.inflight -= size
	e.delivered += size
	d := now.Sub(e.at)
	e.low = min(e.low, e.inflight)
	// For a while there was too little to send: the lane may carry more. Of one that was full
	// before and always had something, only what it sends with has: it gets no processor.
	idle := e.dry || e.rate == 0 && e.low < e.full()
	if e.longer.was > 0 && now.After(e.longer.lookAt) {
		e.shortest, e.longer.was = min(e.shortest, e.longer.was), 0
	}
	if d <= 0 || d < rateWindow && (!idle || e.rate > 0 || e.proved > 0 || e.delivered < leastSample) {
		return
	}
	sample := float64(e.delivered) / d.Seconds()
	switch {
	case e.rate == 0 && (idle || sample > e.proved*growing):
		e.proved = max(e.proved, sample)
	case e.rate == 0:
		e.rate = sample
	case idle && sample <= e.rate:
	case e.held && sample < e.rate:
		e.carriesLess(sample, now)
	default:
		e.rate += (sample - e.rate) * 0.4
		if e.least > 0 && !e.queues() {
			e.squeeze = squeeze{}
		}
	}
	e.begin(now)
}

// begin begins a sample.
func (e *estimate) begin(now time.Time) {
	e.at, e.delivered, e.low, e.least = now, 0, e.inflight, 0
	e.dry, e.held = false, false
}

// queues says whether no round trip of the sample was as short as it would be with what may wait on a lane that is
// held.
func (e *estimate) queues() bool { return e.least > e.shortest+2*queuedShort }

// carriesLess takes a sample of a lane that was held: what is under way then follows from its
// rate, and what arrives from what is under way. So a path that got longer, or acknowledgements
// that come late, look like a link that got slower, and a rate that followed each sample would
// fall without end. It is lowered where round trips say that something queues; and where they
// stay as long with less under way the path is longer, and the rate as it was.
func (e *estimate) carriesLess(sample float64, now time.Time) {
	switch {
	case e.least == 0:
	case !e.queues():
		e.squeeze = squeeze{}
	case e.squeeze.before == 0:
		e.squeeze = squeeze{e.rate, now.Add(2 * e.least)}
		e.rate = sample
	case e.at.After(e.squeeze.until):
		if e.longer.was == 0 {
			e.longer.was = e.shortest
		}
		e.longer.every = max(2*e.longer.every, longerLeast)
		e.longer.lookAt = now.Add(e.longer.every)
		e.shortest, e.rate, e.squeeze = e.least, e.squeeze.before, squeeze{}
	}
}

// starved notes whether a lane that had nothing to send has run dry: unsent is what the kernel
// has of it and has not sent yet, negative where it does not tell.
func (e *estimate) starved(unsent int) {
	if e.hungry && (unsent == 0 || unsent < 0 && e.inflight < e.full()) {
		e.dry = true
	}
}

// full is how much must be under way all the time for what arrives to tell first what the lane
// can carry: half of what fits on its way, within what a busy lane has in its socket.
func (e *estimate) full() int64 {
	return min(max(64<<10, int64(max(e.rate, e.proved)*e.rtt.Seconds()/2)), notSent)
}

// lost notes that a frame on this lane counts no more.
func (e *estimate) lost(size int64) { e.inflight -= size }

// speed is what the lane can carry as far as is known: its rate, and where it never was full
// what is expected of it, or what arrived if that is more. Where acknowledgements come in bunches that is more than was sent
// at times, but not here. 0: unknown.
func (e *estimate) speed() float64 {
	speed := e.rate
	if speed == 0 {
		speed = max(e.expected, e.proved)
	}
	if e.most > 0 {
		return min(speed, e.most)
	}
	return speed
}

// arrival is how long size more bytes would take to the other end.
func (e *estimate) arrival(size int64) (time.Duration, bool) { return e.after(e.inflight, size) }

// after is arrival where so much is under way before them.
func (e *estimate) after(inflight, size int64) (time.Duration, bool) {
	speed := e.speed()
	if speed <= 0 {
		return 0, false
	}
	waiting := max(0, float64(inflight)-speed*e.rtt.Seconds()) // the rest is on its way
	return e.rtt/2 + time.Duration((waiting+float64(size))/speed*float64(time.Second)), true
}

// queuedShort is how long what is sent may wait on its way where queues are kept short.
// Less would leave the lane idle where an acknowledgement comes late, as one does where
// processors are busy.
const queuedShort = 30 * time.Millisecond

// brimful says whether size more than what is under way would wait in some queue: it is what
// fits on the way, and a little. A round trip that has grown counts for a fourth, in case the
// path has, and not a queue.
func (e *estimate) brimful(size int64) bool {
	speed := e.speed()
	if speed <= 0 || e.shortest == 0 {
		return false
	}
	fits := max(e.shortest, e.rtt/4) + queuedShort
	return float64(e.inflight-size) >= speed*fits.Seconds() // a frame is acknowledged when all of it is there
}
