package paths

import (
	"math"
	"testing"
	"time"
)

// carry lets frames go over a lane that carries rate bytes per second, one every so often,
// each acknowledged when it has arrived. In between there is nothing to send, if it is hungry.
func (e *estimate) carry(from time.Time, last, every time.Duration, size int64, rate float64, hungry bool) time.Time {
	var way []time.Time // when frames that were sent are there
	free := from        // when the lane has sent what it was given
	now := from
	for ; now.Before(from.Add(last)); now = now.Add(every) {
		for len(way) > 0 && !way[0].After(now) {
			e.acked(size, way[0])
			way = way[1:]
		}
		if e.inflight >= 4*notSent {
			continue // its socket is full
		}
		e.dry = e.dry || hungry
		e.sent(size, now)
		if free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(float64(size) / rate * float64(time.Second)))
		way = append(way, free.Add(e.rtt))
	}
	for _, at := range way {
		e.acked(size, at)
		now = at
	}
	return now
}

// near says whether got is what is wanted, but for a fifth.
func near(got, want float64) bool { return got > want*0.8 && got < want*1.2 }

// TestLittleToSendTellsNothing: frames of records of some 40 bytes, for pages that the other
// end has, leave a lane of 10 MB/s empty nearly all the time.
func TestLittleToSendTellsNothing(t *testing.T) {
	const link, rtt = 10e6, 20 * time.Millisecond
	const littleEvery, little = 5 * time.Millisecond, 64 * 40
	const whole, wholeEvery = 64 << 10, 2 * time.Millisecond
	begun := time.Unix(1, 0)
	for name, c := range map[string]struct {
		expected float64
		course   func(e *estimate)
		want     float64
	}{
		"before it was full, with a rate by configuration": {link, func(e *estimate) {
			e.carry(begun, 3*time.Second, littleEvery, little, link, true)
		}, link},
		"after it was full": {0, func(e *estimate) {
			end := e.carry(begun, 2*time.Second, wholeEvery, whole, link, false)
			e.carry(end, 10*time.Second, littleEvery, little, link, true)
		}, link},
		"full after it was not, and less than expected": {3 * link, func(e *estimate) {
			end := e.carry(begun, time.Second, littleEvery, little, link, true)
			e.carry(end, 2*time.Second, wholeEvery, whole, link, false)
		}, link},
		"a link that gets slower": {0, func(e *estimate) {
			end := e.carry(begun, 2*time.Second, wholeEvery, whole, link, false)
			e.carry(end, 10*time.Second, wholeEvery, whole, link/4, false)
		}, link / 4},
		"it gets no processor, after it was full": {0, func(e *estimate) {
			end := e.carry(begun, 2*time.Second, wholeEvery, whole, link, false)
			e.carry(end, 10*time.Second, 30*time.Millisecond, whole, link, false)
		}, whole / 0.03},
		"little to send, in large pieces": {0, func(e *estimate) {
			end := e.carry(begun, 2*time.Second, wholeEvery, whole, link, false)
			e.carry(end, 10*time.Second, 30*time.Millisecond, whole, link, true)
		}, link},
		"little to send, and much of it on a long way": {0, func(e *estimate) {
			e.rtt = 40 * time.Millisecond
			end := e.carry(begun, 2*time.Second, wholeEvery, whole, link, false)
			e.carry(end, 10*time.Second, 5*wholeEvery, whole, link, true)
		}, link},
		"never full, and nothing is expected": {0, func(e *estimate) {
			e.carry(begun, 3*time.Second, littleEvery, little, link, true)
		}, little / littleEvery.Seconds()},
	} {
		t.Run(name, func(t *testing.T) {
			e := &estimate{expected: c.expected, rtt: rtt}
			c.course(e)
			if !near(e.speed(), c.want) {
				t.Errorf("%.2f MB/s, want %.2f", e.speed()/1e6, c.want/1e6)
			}
		})
	}
	e := &estimate{rtt: rtt}
	e.carry(begun, 3*time.Second, littleEvery, little, link, true)
	if e.rate > 0 {
		t.Errorf("a lane that never was full has a rate of %.2f MB/s", e.rate/1e6)
	}
}

// TestSlowStartIsNoRate: a connection that gets faster in each round trip has not found its path's rate. Until it has,
// it is expected to carry what is configured; then what it was seen to.
func TestSlowStartIsNoRate(t *testing.T) {
	const link, rtt, whole, tick = 20e6, 150 * time.Millisecond, 16 << 10, time.Millisecond
	e := &estimate{expected: 2 * link, rtt: rtt}
	begun, rate, left := time.Unix(1, 0), link/256.0, 0.0
	for at := begun; at.Before(begun.Add(4 * time.Second)); at = at.Add(tick) {
		for e.inflight < 4*notSent {
			e.sent(whole, at)
		}
		for left += rate * tick.Seconds(); left >= whole; left -= whole {
			e.acked(whole, at)
		}
		if rate = min(link, rate*math.Pow(2, tick.Seconds()/rtt.Seconds())); rate < link && e.speed() < link {
			t.Fatalf("while it carries %.2f MB/s it is taken to carry no more than %.2f", rate/1e6, e.speed()/1e6)
		}
	}
	if !near(e.speed(), link) {
		t.Errorf("then %.2f MB/s, want %.2f", e.speed()/1e6, link/1e6)
	}
}

// TestStarved: a lane without frames runs dry when its kernel has sent all; where that is not
// told, when little is under way.
func TestStarved(t *testing.T) {
	for name, c := range map[string]struct {
		hungry   bool
		inflight int64
		unsent   int
		dry      bool
	}{
		"it has frames":                       {false, 0, 0, false},
		"the kernel has some":                 {true, 1 << 20, 4096, false},
		"the kernel has sent all":             {true, 1 << 20, 0, true},
		"not told, and much is under way":     {true, 1 << 20, -1, false},
		"not told, and little is under way":   {true, 1 << 10, -1, true},
		"not told, but there are more frames": {false, 1 << 10, -1, false},
	} {
		e := estimate{rate: 10e6, rtt: 20 * time.Millisecond, hungry: c.hungry, inflight: c.inflight}
		if e.starved(c.unsent); e.dry != c.dry {
			t.Errorf("%s: dry %v, want %v", name, e.dry, c.dry)
		}
	}
}

// TestLate: in a hurry the last frames are left to the lane that brings them sooner, but to none
// that has brought nothing for a while.
func TestLate(t *testing.T) {
	now := time.Now()
	fast := &lane{estimate: estimate{rtt: 10 * time.Millisecond}}
	if d := fast.late(now); d != 0 {
		t.Errorf("nothing is on its way, and it is %v late", d)
	}
	fast.flights = []*flight{{eta: now.Add(-5 * time.Millisecond)}, {eta: now.Add(-time.Second)}}
	if d := fast.late(now); d != 0 {
		t.Errorf("its acknowledgement may be on its way, and it is %v late", d)
	}
	if d := fast.late(now.Add(100 * time.Millisecond)); d != 95*time.Millisecond {
		t.Errorf("%v late, want 95 ms", d)
	}
}

// TestBrimful: where queues are kept short a lane has what fits on its way, and
// 30 ms and a frame more.
func TestBrimful(t *testing.T) {
	for name, c := range map[string]struct {
		speed         float64
		shortest, rtt time.Duration
		most          int64 // bytes under way before it is
	}{
		"nothing is known":          {0, 0, 0, 1 << 40},
		"no queue":                  {10e6, 20 * time.Millisecond, 20 * time.Millisecond, 501_000},
		"a queue that was built":    {10e6, 20 * time.Millisecond, 70 * time.Millisecond, 501_000},
		"a path that got longer":    {10e6, 20 * time.Millisecond, 400 * time.Millisecond, 1_301_000},
		"a slow one is not starved": {100e3, 100 * time.Millisecond, 100 * time.Millisecond, 14_000},
	} {
		e := estimate{rate: c.speed, shortest: c.shortest, rtt: c.rtt}
		if e.inflight = c.most - 1; e.brimful(1000) {
			t.Errorf("%s: brimful with %d bytes", name, e.inflight)
		}
		if e.inflight = c.most; c.speed > 0 && !e.brimful(1000) {
			t.Errorf("%s: not brimful with %d bytes", name, e.inflight)
		}
	}
}

// hold lets frames go over a lane whose queues are kept short: rate bytes per second, base for a
// round trip, and every acknowledgement late by as much as is said. It returns when it ends, and
// what arrived per second in the last second.
func (e *estimate) hold(from time.Time, last time.Duration, rate float64, base, late time.Duration) (time.Time, float64) {
	return e.holdWhile(from, last, rate, base, func(time.Time) time.Duration { return late })
}

// holdWhile is hold where acknowledgements are late by as much as late says at that time. They come in order.
func (e *estimate) holdWhile(from time.Time, last time.Duration, rate float64, base time.Duration, late func(time.Time) time.Duration) (time.Time, float64) {
	const size = 16 << 10
	type trip struct{ sent, back time.Time }
	var way []trip
	arrived, free, now := 0, from, from
	for ; now.Before(from.Add(last)); now = now.Add(time.Millisecond) {
		for len(way) > 0 && !way[0].back.After(now) {
			e.sawRTT(way[0].back.Sub(way[0].sent), now)
			e.acked(size, way[0].back)
			way = way[1:]
			if now.After(from.Add(last - time.Second)) {
				arrived += size
			}
		}
		for !e.brimful(size) {
			e.sent(size, now)
			if free.Before(now) {
				free = now
			}
			free = free.Add(time.Duration(size / rate * float64(time.Second)))
			back := free.Add(base + late(now))
			if len(way) > 0 && back.Before(way[len(way)-1].back) {
				back = way[len(way)-1].back
			}
			way = append(way, trip{now, back})
		}
		e.held = true
	}
	for _, w := range way {
		e.acked(size, w.back)
		now = w.back
	}
	return now, float64(arrived)
}

// TestHeldLaneKeepsItsRate: what a lane whose queues are kept short carries follows from its
// rate, and must not lower that again and again.
func TestHeldLaneKeepsItsRate(t *testing.T) {
	const link, base = 12.5e6, 20 * time.Millisecond
	for name, c := range map[string]struct {
		rate       float64
		base, late time.Duration
		speed      float64 // bytes per second that it is to carry at least
		queue      time.Duration
	}{
		"as it was":                          {link, base, 0, 0.9 * link, 40 * time.Millisecond},
		"acknowledgements are late":          {link, base, 25 * time.Millisecond, 0.9 * link, 40 * time.Millisecond},
		"acknowledgements are very late":     {link, base, 50 * time.Millisecond, 0.6 * link, 40 * time.Millisecond},
		"the path is 60 ms longer":           {link, base + 60*time.Millisecond, 0, 0.55 * link, 40 * time.Millisecond},
		"the path is 100 ms longer":          {link, base + 100*time.Millisecond, 0, 0.9 * link, 50 * time.Millisecond},
		"the path is 300 ms longer":          {link, base + 300*time.Millisecond, 0, 0.9 * link, 50 * time.Millisecond},
		"the link is half as fast":           {link / 2, base, 0, 0.9 * link / 2, 100 * time.Millisecond},
		"a tenth of the link":                {link / 10, base, 0, 0.9 * link / 10, 100 * time.Millisecond},
		"longer, and a tenth of the link":    {link / 10, base + 100*time.Millisecond, 0, 0.9 * link / 10, 200 * time.Millisecond},
		"the path is shorter, and link is 2": {link * 2, base / 2, 0, 0.9 * link, 60 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			e := &estimate{rtt: base, shortest: base}
			end := e.carry(time.Unix(1, 0), 2*time.Second, 2*time.Millisecond, 64<<10, link, false)
			end, _ = e.hold(end, 2*time.Second, link, base, 0)
			_, got := e.hold(end, 14*time.Second, c.rate, c.base, c.late)
			queue := time.Duration(e.inflightBound()/c.rate*float64(time.Second)) - c.base
			t.Logf("%.1f MB/s, rate %.1f, queue %v", got/1e6, e.rate/1e6, queue)
			if got < c.speed || queue > c.queue {
				t.Errorf("%.1f MB/s, want %.1f at least; a queue of %v, want %v at most", got/1e6, c.speed/1e6, queue, c.queue)
			}
		})
	}
}

// TestLateForAWhile: acknowledgements that came late for a while leave no longer queue behind for good.
func TestLateForAWhile(t *testing.T) {
	const link, base = 12.5e6, 20 * time.Millisecond
	e := &estimate{rtt: base, shortest: base}
	end := e.carry(time.Unix(1, 0), 2*time.Second, 2*time.Millisecond, 64<<10, link, false)
	end, _ = e.hold(end, 2*time.Second, link, base, 0)
	over, longest := end.Add(3*time.Second), time.Duration(0)
	_, got := e.holdWhile(end, 13*time.Second, link, base, func(now time.Time) time.Duration {
		longest = max(longest, e.shortest)
		if now.Before(over) {
			return 100 * time.Millisecond
		}
		return 0 // what is under way keeps it as long
	})
	if longest < 100*time.Millisecond {
		t.Fatalf("the path is %v long, and was not taken to be longer", longest)
	}
	if queue := time.Duration(e.inflightBound()/link*float64(time.Second)) - base; got < 0.9*link || queue > 50*time.Millisecond {
		t.Errorf("%.1f MB/s with a queue of %v", got/1e6, queue)
	}
}

// inflightBound is how many bytes may be under way before the lane is brimful.
func (e *estimate) inflightBound() float64 {
	return e.speed() * (max(e.shortest, e.rtt/4) + queuedShort).Seconds()
}

// TestRateIsOfTheFullLane: a burst that arrived in one piece before the lane was full, faster than its link, is not
// told as what it carries once that is known.
func TestRateIsOfTheFullLane(t *testing.T) {
	const link, burst = 5e6, 1 << 20
	begun := time.Unix(1, 0)
	l := &lane{path: "a"}
	l.rtt = 20 * time.Millisecond
	s := &session{lanes: []*lane{l}, paths: map[string]*Path{}}
	s.path("a")
	l.dry = true
	l.sent(burst, begun)
	l.acked(burst, begun.Add(100*time.Millisecond))
	if got := s.stats().Paths[0].Rate; got != burst*10 {
		t.Fatalf("before it was full: %d bytes/s", got)
	}
	l.carry(begun.Add(time.Second), 3*time.Second, 2*time.Millisecond, 64<<10, link, false)
	if got := s.stats().Paths[0].Rate; !near(float64(got), link) {
		t.Errorf("%d bytes/s of a link of %.0f", got, link)
	}
}
