package wan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rig feeds a pipe with packets of our own and sees when they come out.
type rig struct {
	*pipe
	slabs slabs
	out   []delivery
}

type delivery struct {
	at      time.Duration
	packets int
	wire    int
	mark    byte // first payload byte
}

func newRig(link Link) *rig {
	r := &rig{}
	r.pipe = newPipe(link, true, rand.New(rand.NewPCG(1, 2)), &r.slabs)
	return r
}

// send offers one plain packet of n IP bytes.
func (r *rig) send(now time.Duration, n int, mark byte) {
	r.run(now)
	room := r.slabs.room()[:vnetLen+n]
	clear(room)
	room[vnetLen], room[vnetLen+n-1] = 0x45, mark
	r.giveRaw(now, room)
}

// run takes what is due up to now, each at the time that next says.
func (r *rig) run(now time.Duration) {
	for {
		due, ok := r.next()
		if !ok || due > now {
			return
		}
		u := r.take(due)
		if u == nil { // next may be early: go on to where it is exact
			due, _ = r.next()
			if due > now {
				return
			}
			u = r.take(due)
		}
		r.out = append(r.out, delivery{due, u.packets, u.wire, u.body[len(u.body)-1]})
		r.taken(u, true)
	}
}

const second = time.Second

func TestPipeTimes(t *testing.T) {
	for _, c := range []struct {
		name string
		link Link
		send []time.Duration // one packet of 1000 bytes each
		want []time.Duration
	}{
		{"perfect", Link{}, []time.Duration{0, 5}, []time.Duration{0, 5}},
		{"delay", Link{Delay: second}, []time.Duration{0, 7}, []time.Duration{second, second + 7}},
		{"rate, idle between", Link{Rate: 8000}, []time.Duration{0, 3 * second}, []time.Duration{second, 4 * second}},
		{"rate, behind each other", Link{Rate: 8000}, []time.Duration{0, 0, 1}, []time.Duration{second, 2 * second, 3 * second}},
		{"rate and delay", Link{Rate: 8000, Delay: second / 2}, []time.Duration{0, second / 4}, []time.Duration{3 * second / 2, 5 * second / 2}},
	} {
		r := newRig(c.link)
		for i, at := range c.send {
			r.send(at, 1000, byte(i))
		}
		r.run(time.Hour)
		if len(r.out) != len(c.want) {
			t.Errorf("%s: %d delivered of %d", c.name, len(r.out), len(c.want))
			continue
		}
		for i, d := range r.out {
			if d.at != c.want[i] || d.mark != byte(i) {
				t.Errorf("%s: packet %d came as %d at %v, want %v", c.name, i, d.mark, d.at, c.want[i])
			}
		}
	}
}

// TestPipeCatchesUp: where the delay becomes shorter under load, what was sent after that comes
// behind what was sent before, at twice the link's rate, and not in one moment.
func TestPipeCatchesUp(t *testing.T) {
	long, short := 100*time.Millisecond, 10*time.Millisecond
	r := newRig(Link{Rate: 8e6, Delay: long})
	for i := range 400 { // one packet of 1 ms each ms
		if i == 100 {
			r.set(time.Duration(i)*time.Millisecond, Link{Rate: 8e6, Delay: short}, true)
		}
		r.send(time.Duration(i)*time.Millisecond, 1000, byte(i))
	}
	r.run(time.Hour)
	if len(r.out) != 400 {
		t.Fatalf("%d delivered of 400", len(r.out))
	}
	for i := 1; i < 400; i++ {
		if gap := r.out[i].at - r.out[i-1].at; gap < time.Millisecond/2 || r.out[i].mark != byte(i) {
			t.Fatalf("packet %d (%d) comes %v after the one before", i, r.out[i].mark, gap)
		}
	}
	if last := r.out[399].at; last != 400*time.Millisecond+short {
		t.Errorf("the last comes at %v: the delay is not the new one", last)
	}
}

// TestPipeForgetsWhatACutLost: what comes after a cut does not wait for what the cut lost.
func TestPipeForgetsWhatACutLost(t *testing.T) {
	r := newRig(Link{Delay: 10 * second})
	r.send(0, 1000, 1)
	r.set(second, Link{Delay: 10 * second}, false)
	r.set(2*second, Link{Delay: second}, true)
	r.send(2*second, 1000, 2)
	r.run(time.Hour)
	if len(r.out) != 1 || r.out[0].at != 3*second {
		t.Errorf("delivered %+v", r.out)
	}
}

func TestPipeQueueDropsTheTail(t *testing.T) {
	r := newRig(Link{Rate: 8000, Queue: 3500})
	for i := range 5 {
		r.send(0, 1000, byte(i))
	}
	if r.flow.QueueDrop != 2 || r.waiting != 3000 {
		t.Errorf("dropped %d with %d bytes waiting, want 2 and 3000", r.flow.QueueDrop, r.waiting)
	}
	r.send(second, 1000, 9) // one has been sent: room again
	r.run(time.Hour)
	var marks []byte
	for _, d := range r.out {
		marks = append(marks, d.mark)
	}
	if string(marks) != string([]byte{0, 1, 2, 9}) {
		t.Errorf("delivered %v", marks)
	}
}

func TestPipeQueueShorterThanAPacket(t *testing.T) {
	r := newRig(Link{Rate: 8000, Queue: 100})
	r.send(0, 1000, 1)
	r.send(0, 1000, 2)
	r.run(time.Hour)
	if len(r.out) != 1 || r.flow.QueueDrop != 1 {
		t.Errorf("delivered %d, dropped %d, want one each", len(r.out), r.flow.QueueDrop)
	}
}

func TestPipeCutLosesWhatIsOnItsWay(t *testing.T) {
	r := newRig(Link{Rate: 8000, Delay: 10 * second})
	for range 4 {
		r.send(0, 1000, 1)
	}
	r.set(2*second+1, r.link, false) // two in the line, two in the queue
	r.send(3*second, 1000, 2)
	r.set(4*second, r.link, true)
	r.send(4*second, 1000, 3)
	r.run(time.Hour)
	if len(r.out) != 1 || r.out[0].mark != 3 || r.out[0].at != 15*second {
		t.Errorf("delivered %v, want the last one at 15 s", r.out)
	}
	if r.flow.CutDrop != 5 || r.waiting != 0 || r.inFlight != 0 {
		t.Errorf("cut lost %d, want 5; %d waiting, %d in flight", r.flow.CutDrop, r.waiting, r.inFlight)
	}
}

func TestPipeChangesRateWithoutABurst(t *testing.T) {
	r := newRig(Link{Rate: 8, Queue: 1 << 20}) // 1000 s a packet
	for i := range 3 {
		r.send(0, 1000, byte(i))
	}
	r.set(500*second, Link{Rate: 8000}, true)
	r.run(time.Hour)
	for i, d := range r.out {
		if want := time.Duration(501+i) * second; d.at != want {
			t.Errorf("packet %d at %v, want %v", i, d.at, want)
		}
	}
}

func TestPipeLossIsAsAsked(t *testing.T) {
	for _, loss := range []float64{0, 0.001, 0.01, 0.3, 1} {
		r := newRig(Link{Loss: loss})
		const n = 200_000
		for i := range n {
			r.send(time.Duration(i), 100, 0)
		}
		r.run(time.Hour)
		got := float64(r.flow.LossDrop) / n
		sigma := math.Sqrt(loss * (1 - loss) / n)
		if math.Abs(got-loss) > 4*sigma {
			t.Errorf("loss %v of %v", got, loss)
		}
		if int(r.flow.LossDrop)+len(r.out) != n {
			t.Errorf("loss %v: %d lost and %d delivered of %d", loss, r.flow.LossDrop, len(r.out), n)
		}
	}
}

func TestPipeJitterKeepsOrderAndMean(t *testing.T) {
	link := Link{Delay: 50 * time.Millisecond, Jitter: 5 * time.Millisecond}
	r := newRig(link)
	const n = 100_000
	gap := 100 * time.Microsecond
	for i := range n {
		r.send(time.Duration(i)*gap, 100, byte(i))
	}
	r.run(time.Hour)
	var sum, low, high time.Duration = 0, time.Hour, 0
	for i, d := range r.out {
		if d.mark != byte(i) {
			t.Fatalf("packet %d out of order", i)
		}
		took := d.at - time.Duration(i)*gap
		sum, low, high = sum+took, min(low, took), max(high, took)
	}
	mean := sum / n
	if mean < 49500*time.Microsecond || mean > 50500*time.Microsecond {
		t.Errorf("mean delay %v", mean)
	}
	if low < link.Delay-link.Jitter || low > 46*time.Millisecond || high > link.Delay+link.Jitter || high < 54*time.Millisecond {
		t.Errorf("delay from %v to %v, want about all of ± 5 ms", low, high)
	}
}

// TestPipeKeepsAccounts: whatever comes and whatever changes, packets keep their order,
// come no earlier than the delay allows, and every one is delivered or counted as lost.
func TestPipeKeepsAccounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		link := rapid.Custom(func(rt *rapid.T) Link {
			delay := time.Duration(rapid.IntRange(0, 50).Draw(rt, "delay")) * time.Millisecond
			return Link{
				Rate:   int64(rapid.SampledFrom([]int{0, 1e5, 1e6, 1e8}).Draw(rt, "rate")),
				Delay:  delay,
				Jitter: delay / time.Duration(rapid.IntRange(1, 4).Draw(rt, "part")),
				Loss:   rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(rt, "loss"),
				Queue:  rapid.SampledFrom([]int{0, 1000, 5000}).Draw(rt, "queue"),
			}
		})
		r := newRig(link.Draw(rt, "link"))
		now, sent := time.Duration(0), 0
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			now += time.Duration(rapid.IntRange(0, 5000).Draw(rt, "pause")) * time.Microsecond
			if rapid.IntRange(0, 20).Draw(rt, "change") == 0 {
				r.run(now)
				r.set(now, link.Draw(rt, "link"), rapid.Bool().Draw(rt, "carries"))
				continue
			}
			r.send(now, rapid.IntRange(20, 1500).Draw(rt, "size"), 0)
			sent++
		}
		r.run(time.Hour)
		lost := int(r.flow.QueueDrop + r.flow.LossDrop + r.flow.CutDrop)
		if lost+len(r.out) != sent || int(r.flow.Packets) != len(r.out) {
			rt.Fatalf("%d sent, %d lost, %d delivered, %d counted", sent, lost, len(r.out), r.flow.Packets)
		}
		if r.waiting != 0 || r.inFlight != 0 || r.slabs.current != nil && r.slabs.current.refs != 0 {
			rt.Fatalf("empty, but %d waiting, %d in flight", r.waiting, r.inFlight)
		}
		for i := 1; i < len(r.out); i++ {
			if r.out[i].at < r.out[i-1].at {
				rt.Fatalf("packet %d came before the one before it", i)
			}
		}
	})
}
