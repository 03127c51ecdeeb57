package wan

import (
	"math"
	"math/rand/v2"
	"time"
)

// grain bounds how long one unit occupies the transmitter, if it has more than one
// packet: large sends are cut to it, so that a link spaces its packets.
const grain = 800 * time.Microsecond

// lineLimit bounds the bytes in flight of a link that has no rate.
const lineLimit = 256 << 20

// unit is one or more packets that travel together.
type unit struct {
	head    [vnetLen + maxHeaders]byte
	headLen int    // bytes of head that go before body
	body    []byte // in slab
	slab    *slab
	packets int
	wire    int           // IP bytes on the wire
	at      time.Duration // in the queue: arrival; in the line: when it is due
}

// pipe is one direction of a link. It computes only: time is an argument, measured
// from any fixed start. An offer may be dated back a little, to when its packet came.
type pipe struct {
	link     Link
	carries  bool // not cut
	queue    ring[unit]
	waiting  int              // bytes in queue
	sent     time.Duration    // when the transmitter finished its last unit
	idle     [2]time.Duration // from when until when it had nothing to do, the last time
	line     ring[unit]
	inFlight int           // bytes in line
	lastDue  time.Duration // no later unit may be due before
	late     time.Duration // packets that are offered may have come so much earlier, as somebody was late; see inTurn
	random   *rand.Rand
	survive  int // packets that pass before the next loss
	jitter   wander
	slabs    *slabs
	flow     Flow
	lost     lost
}

func newPipe(link Link, carries bool, random *rand.Rand, slabs *slabs) *pipe {
	p := &pipe{random: random, slabs: slabs, jitter: wander{random: random}}
	p.set(0, link, carries)
	return p
}

// set changes the link from now on. Packets in the queue go on at the new rate, those
// in the line arrive when they were due; a cut loses all of them.
func (p *pipe) set(now time.Duration, link Link, carries bool) {
	p.advance(now)
	if link.Rate != p.link.Rate {
		p.sent = max(p.sent, now)
	}
	if link.Loss != p.link.Loss || p.survive == 0 {
		p.survive = nextLoss(link.Loss, p.random)
	}
	p.link, p.carries = link, carries
	if !carries {
		p.drain()
	}
}

// drain loses everything on its way.
func (p *pipe) drain() {
	for _, r := range []*ring[unit]{&p.queue, &p.line} {
		for u := r.front(); u != nil; u = r.front() {
			p.flow.CutDrop += uint64(u.packets)
			p.lost.unit(u)
			p.slabs.release(u.slab)
			r.pop()
		}
	}
	p.waiting, p.inFlight, p.lastDue = 0, 0, 0
}

// inTurn takes what came in a bunch, for which there is no room in the queue, as having come in turn while
// somebody was late: some of it has been sent by now then. What there is room for is not touched: a packet
// alone came when it was read, as far as anybody knows.
func (p *pipe) inTurn(now time.Duration) {
	if p.late <= 0 {
		return
	}
	since := now - p.late
	for i := range p.queue.count {
		u := p.queue.at(i)
		u.at = min(u.at, since)
	}
	if unused := p.idle[1] - max(p.idle[0], since); unused > 0 { // what it sent since then it could have sent before
		p.sent -= unused
		p.idle[1] -= unused
	}
	p.advance(now)
}

// offer gives the link a packet that lies in sl.
func (p *pipe) offer(now time.Duration, pkt *packet, sl *slab) {
	p.lost.came(pkt.raw[vnetLen:])
	if !p.carries {
		p.flow.CutDrop += uint64(pkt.count)
		p.lost.dropped(pkt, 0, pkt.count)
		return
	}
	p.advance(now)
	for i := 0; i < pkt.count; {
		run := min(pkt.count-i, p.survive)
		p.admit(now, pkt, sl, i, i+run)
		i += run
		if p.survive == math.MaxInt {
			continue
		}
		p.survive -= run
		if p.survive == 0 && i < pkt.count {
			p.flow.LossDrop++
			p.lost.dropped(pkt, i, i+1)
			p.survive = nextLoss(p.link.Loss, p.random)
			i++
		}
	}
}

// admit puts segments from…to-1 in the queue, as far as there is room, in units of a
// grain.
func (p *pipe) admit(now time.Duration, pkt *packet, sl *slab, from, to int) {
	limit := p.link.QueueBytes()
	if p.link.Queue == 0 { // what nobody set has room for what the transmitter is sending, too
		limit += maxPacket
	}
	step := to - from
	if p.link.Rate == 0 {
		limit = lineLimit - p.inFlight
	} else if step > 1 {
		bytes := int(float64(p.link.Rate) / 8 * grain.Seconds())
		step = min(step, max(1, bytes/pkt.wire(0, 1)))
	}
	for from < to {
		next := min(from+step, to)
		if p.waiting+pkt.wire(from, next) > limit {
			p.inTurn(now)
		}
		for next > from && p.waiting+pkt.wire(from, next) > limit {
			if p.waiting == 0 && next == from+1 {
				break // an idle transmitter takes a packet, however short the queue
			}
			next--
		}
		if next == from {
			p.flow.QueueDrop += uint64(to - from)
			p.lost.dropped(pkt, from, to)
			return
		}
		u := p.queue.push()
		pkt.cut(u, from, next)
		u.slab, u.at = sl, now
		sl.refs++
		p.waiting += u.wire
		from = next
	}
}

// departure is when the transmitter has sent the last bit of u, the queue's head.
func (p *pipe) departure(u *unit) time.Duration {
	return max(p.sent, u.at) + p.transmission(u.wire)
}

// transmission is how long it takes to send n bytes.
func (p *pipe) transmission(n int) time.Duration {
	if p.link.Rate == 0 {
		return 0
	}
	return time.Duration(int64(n) * 8 * int64(time.Second) / p.link.Rate)
}

// arrival is when u, which departs at t, reaches the other end. After a delay that became
// shorter, what comes behind those that still have the longer one follows them at twice the
// rate, and not all in one moment.
func (p *pipe) arrival(u *unit, t time.Duration) time.Duration {
	due := t + p.link.Delay + p.jitter.at(t, p.link.Jitter)
	switch {
	case due > p.lastDue:
		return due
	case p.lastDue >= t+p.link.Delay+p.link.Jitter:
		return p.lastDue + p.transmission(u.wire)/2
	}
	return p.lastDue
}

// advance moves what has been sent by now from the queue to the line.
func (p *pipe) advance(now time.Duration) {
	for u := p.queue.front(); u != nil; u = p.queue.front() {
		departure := p.departure(u)
		if departure > now {
			return
		}
		if u.at > p.sent {
			p.idle = [2]time.Duration{p.sent, u.at}
		}
		p.sent = departure
		p.lastDue = p.arrival(u, departure)
		moved := p.line.push()
		*moved = *u
		moved.at = p.lastDue
		p.waiting -= u.wire
		p.inFlight += u.wire
		p.queue.pop()
	}
}

// next returns when take will have something, if no other packet comes; ok is false
// if the pipe is empty. It may be early, never late.
func (p *pipe) next() (due time.Duration, ok bool) {
	if u := p.line.front(); u != nil {
		return u.at, true
	}
	if u := p.queue.front(); u != nil {
		departure := p.departure(u)
		return max(p.lastDue, departure+p.link.Delay-p.link.Jitter), true
	}
	return 0, false
}

// take returns the next unit that is due by now, nil if there is none. The caller
// passes it on, and then calls taken.
func (p *pipe) take(now time.Duration) *unit {
	p.advance(now)
	u := p.line.front()
	if u == nil || u.at > now {
		return nil
	}
	return u
}

// taken removes the unit that take returned, counted as delivered or as refused by
// the device.
func (p *pipe) taken(u *unit, delivered bool) {
	if delivered {
		p.flow.Packets += uint64(u.packets)
		p.flow.Bytes += uint64(u.wire)
	} else {
		p.flow.DeviceDrop += uint64(u.packets)
	}
	p.inFlight -= u.wire
	p.slabs.release(u.slab)
	p.line.pop()
}
