package policy

import (
	"cmp"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPredict(t *testing.T) {
	const memory = 256 << 20
	carried := carriedShare * 1e8 / 8
	for _, c := range []struct {
		name  string
		facts Facts
		wire  float64 // bytes without headers and tail
		took  float64 // seconds that memory is copied
	}{
		{"nothing but zeros", Facts{}, 0, 0},
		{"zeros cost a marker", Facts{Zero: 9}, memory / 4096 * 9, 0},
		{"no zeros", Facts{Content: memory}, memory, 0},
		{"half of it packs to a third", Facts{Content: memory / 2, Ratio: 1. / 3}, memory / 6, 0},
		{"what the destination has goes by its name", Facts{Content: memory, Known: memory / 2}, memory/2 + memory/2/4096*knownPage, 0},
		{"more known than there is", Facts{Content: memory, Known: 2 * memory}, memory / 4096 * knownPage, 0},
		{"half of each round is written again", Facts{Content: memory, DirtyRate: int64(carried / framing / 2)}, 2 * memory, 0},
		{"all that is written again packs to nothing", Facts{Content: memory, DirtyRate: int64(carried / framing / 2), Again: 1e-6}, memory, 0},
		{"written faster than sent", Facts{Content: memory, DirtyRate: 1 << 40}, 20 * memory, 0},
		{"as fast as sent, and throttled", Facts{Content: memory, DirtyRate: int64(carried / framing), MostThrottle: 90}, 2 * memory, 0},
		{"throttling is not enough", Facts{Content: memory, DirtyRate: 1 << 40, MostThrottle: 90}, 20 * memory, 0},
		{"the hosts are slower than the path", Facts{Content: memory, Known: memory, Speed: memory / 10}, memory / 4096 * knownPage, 10},
		{"the hosts are slower, and half of each round is written again", Facts{Content: memory, Known: memory, Again: 1e-9, Speed: memory / 10, DirtyRate: memory / 20}, memory / 4096 * knownPage, 20},
		{"the rest follows, and it is little", Facts{Content: memory, DirtyRate: int64(carried / framing / 4), Follows: true}, memory * 4 / 3, 0},
		{"the rest follows after half as long again", Facts{Content: memory, DirtyRate: 1 << 40, Follows: true}, memory + memory/2 + memory, framing * memory / carried * 1.5},
		{"the rest follows at once", Facts{Content: memory, Speed: memory, DirtyRate: 8 << 20, Early: true}, memory + 8<<20, 1},
		{"the rest follows at once, from hosts of which nobody knows how fast they are", Facts{Content: memory, DirtyRate: 8 << 20, Early: true}, memory + 8<<20, framing * memory / carried},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.Memory, c.facts.Rate, c.facts.RTT, c.facts.Budget, c.facts.Spent = memory, 100_000_000, 20*ms, 300*ms, time.Second
			f := Predict(c.facts)
			if want := c.wire*framing + tail; !near(float64(f.WireBytes), want) {
				t.Errorf("wire bytes %d, want %.0f", f.WireBytes, want)
			}
			if c.took == 0 {
				c.took = c.wire * framing / carried
			}
			want := time.Second + preparing + beginning + switching + (preparingTrips+beginningTrips+switchingTrips)*20*ms + startup(c.wire*framing, carried, 20*ms) + seconds(c.took) + f.Downtime
			if !near(float64(f.Migration), float64(want)) {
				t.Errorf("migration %v, want %v", f.Migration, want)
			}
		})
	}
	if a, b := Predict(Facts{Content: memory}), Predict(Facts{Content: memory, Rate: assumedRate}); a != b {
		t.Errorf("unknown rate: %+v, want %+v", a, b)
	}
}

// TestPredictLastRTT: a pause is as long as the way that the last bytes take, whatever the others.
func TestPredictLastRTT(t *testing.T) {
	pause := func(rtt, last time.Duration) time.Duration {
		return Predict(Facts{Memory: 256 << 20, Rate: 100_000_000, RTT: rtt, LastRTT: last, Budget: 300 * ms}).Downtime
	}
	if long, short := pause(400*ms, 20*ms), pause(20*ms, 0); long != short {
		t.Errorf("%v, and %v where each way is as short", long, short)
	}
	if long, short := pause(20*ms, 400*ms), pause(400*ms, 0); long != short {
		t.Errorf("%v, and %v where each way is as long", long, short)
	}
}

// TestPredictWritten: of memory that is written again and again each round sends a page once, however fast it is written.
func TestPredictWritten(t *testing.T) {
	const memory, hot = 256 << 20, 1 << 20
	f := Facts{Memory: memory, Content: memory, Rate: 100_000_000, RTT: 20 * ms, Budget: 300 * ms}
	idle := Predict(f)
	for rate, c := range map[int64]struct {
		most int64
		late time.Duration
	}{1 << 10: {hot / 8, 10 * ms}, 8 << 20: {4 * hot, 400 * ms}, 16 << 20: {6 * hot, 700 * ms}, 1 << 40: {6 * hot, 700 * ms}} {
		f.DirtyRate, f.Written = rate, hot
		got := Predict(f)
		if more := got.WireBytes - idle.WireBytes; more > c.most || more < c.most/8 {
			t.Errorf("%d bytes/s: %d bytes more, want %d at most", rate, more, c.most)
		}
		if late := got.Migration - idle.Migration; late > c.late {
			t.Errorf("%d bytes/s: %v later, want %v at most", rate, late, c.late)
		}
		f.Written = 0
		all := Predict(f)
		f.Written = 1 << 50
		if most := Predict(f); rate <= 8<<20 && !near(float64(most.WireBytes), float64(all.WireBytes)) {
			t.Errorf("%d bytes/s: %+v, and where all is written %+v", rate, most, all)
		}
	}
}

// TestPredictSettles: where rounds get no shorter before what is left meets the budget that is foreseen, with what
// always waits in a hypervisor's connections then; not where they do, nor where the rest follows.
func TestPredictSettles(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  time.Duration
	}{
		"a pause that is long for rounds that do":  {Facts{DirtyRate: 8e6, Written: 64 << 20, Budget: 150 * ms}, 0},
		"and of little budget, over a long way":    {Facts{DirtyRate: 2e6, Written: 64 << 20, Budget: 70 * ms}, 0},
		"it writes little":                         {Facts{DirtyRate: 1 << 20, Written: 2 << 20}, 0},
		"little, and little waits":                 {Facts{DirtyRate: 1 << 20, Written: 2 << 20, Queue: time.Second}, 0},
		"the same again and again":                 {Facts{DirtyRate: 1 << 40, Written: 4 << 20}, 424 * ms},
		"and there is always something that waits": {Facts{DirtyRate: 1 << 40, Written: 4 << 20, Queue: 100 * ms}, 524 * ms},
		"it fits, but for what waits":              {Facts{DirtyRate: 1 << 40, Written: 2 << 20, Queue: 100 * ms}, 341 * ms},
		"the rest follows":                         {Facts{DirtyRate: 1 << 40, Written: 4 << 20, Follows: true}, 0},
		"it is throttled":                          {Facts{DirtyRate: 16 << 20, Written: 8 << 20, MostThrottle: 90}, 0},
	} {
		c.facts.Memory, c.facts.Content, c.facts.Rate, c.facts.RTT, c.facts.Budget = 256<<20, 256<<20, 100_000_000, 20*ms, cmp.Or(c.facts.Budget, 300*ms)
		f := Predict(c.facts)
		if (f.Settles - c.want).Abs() > 2*ms {
			t.Errorf("%s: %v, want %v", name, f.Settles, c.want)
		}
		if f.Settles > 0 && f.Downtime != c.facts.Budget {
			t.Errorf("%s: a pause of %v", name, f.Downtime)
		}
	}
}

// TestPredictPause: a pause is the way, what is left, and what the guest writes until it is stopped; never longer than its
// budget where that can be kept, and all of the copy where it stands still for that.
func TestPredictPause(t *testing.T) {
	const memory = 256 << 20
	carried := carriedShare * 1e8 / 8
	least := stopping + load + 10*ms + seconds(tail/carried)
	for name, c := range map[string]struct {
		facts Facts
		want  time.Duration
	}{
		"idle":                        {Facts{}, least},
		"it writes":                   {Facts{DirtyRate: 2 << 20}, least + seconds((2<<20)*framing*between.Seconds()/carried)},
		"what it writes is hard work": {Facts{DirtyRate: 2 << 20, Again: 0.001, Speed: 10 << 20}, least + between/5 - seconds(tail/carried)},
		"it writes too much":          {Facts{DirtyRate: 1 << 40, Budget: time.Minute}, least + seconds(0.95*0.95*memory*framing/carried)},
		"the same again and again":    {Facts{DirtyRate: 1 << 40, Written: 1 << 20, Budget: time.Minute}, least + seconds((1<<20)*framing/carried)},
		"the same, and not as fast":   {Facts{DirtyRate: int64(0.9 * carried / framing), Written: 8 << 20, Budget: time.Minute}, least + seconds(-math.Expm1(-0.9*carried/framing*between.Seconds()/(8<<20))*(8<<20)*framing/carried)},
		"within the budget":           {Facts{DirtyRate: 8 << 20, Budget: 140 * ms}, 140 * ms},
		"it stands still all along":   {Facts{Stopped: true, DirtyRate: 1 << 30, Disks: DiskFacts{Bytes: 1 << 30, Packed: 1 << 30}}, least + seconds(memory*framing/carried)},
	} {
		c.facts.Memory, c.facts.Content, c.facts.Rate, c.facts.RTT, c.facts.Budget = memory, memory, 100_000_000, 20*ms, max(c.facts.Budget, 140*ms)
		if f := Predict(c.facts); !near(float64(f.Downtime), float64(c.want)) {
			t.Errorf("%s: %v, want %v", name, f.Downtime, c.want)
		}
	}
}

// TestPredictLost: what is lost goes again, and the last of it costs a round trip more, or two where it is lost twice.
func TestPredictLost(t *testing.T) {
	f := Facts{Memory: 256 << 20, Content: 256 << 20, Rate: 100_000_000, RTT: 100 * ms, Budget: time.Second}
	whole := Predict(f)
	f.Lost = 0.05
	got := Predict(f)
	if !near(float64(got.WireBytes), float64(whole.WireBytes)/0.95) {
		t.Errorf("%d bytes, and %d where nothing is lost", got.WireBytes, whole.WireBytes)
	}
	if more := got.Downtime - whole.Downtime; more < 100*ms || more > 200*ms {
		t.Errorf("a pause of %v, and of %v where nothing is lost", got.Downtime, whole.Downtime)
	}
}

// TestPredictStopped: of a guest that stands still nothing is written meanwhile, and no time is foreseen beside its pause.
func TestPredictStopped(t *testing.T) {
	f := Facts{Memory: 256 << 20, Content: 256 << 20, Rate: 100_000_000, RTT: 20 * ms, Budget: 300 * ms, Stopped: true}
	idle := Predict(f)
	if want := preparing + switching + (preparingTrips+switchingTrips)*20*ms + idle.Downtime; idle.Migration != want {
		t.Errorf("%v, want %v", idle.Migration, want)
	}
	f.DirtyRate = 1 << 30
	if busy := Predict(f); busy != idle {
		t.Errorf("%+v, and %+v where it writes nothing", busy, idle)
	}
}

// TestPredictFollows: a guest whose rest follows it is not throttled before, and does not wait for it.
func TestPredictFollows(t *testing.T) {
	for name, f := range map[string]Facts{"after some rounds": {Follows: true}, "at once": {Early: true}} {
		f.Memory, f.Content, f.Rate, f.RTT, f.Budget, f.DirtyRate = 256<<20, 256<<20, 100_000_000, 20*ms, 300*ms, 1<<40
		without := Predict(f)
		if without.Downtime > time.Second {
			t.Errorf("%s: a pause of %v", name, without.Downtime)
		}
		f.MostThrottle = 90
		if got := Predict(f); got != without {
			t.Errorf("%s: %+v, and %+v where it may not be throttled", name, got, without)
		}
	}
}

// TestPredictFollowsBeyondBudget: a guest whose rest follows it stands still as long as one that has all, and no budget
// keeps that shorter: what QEMU reads as it loads devices goes before.
func TestPredictFollowsBeyondBudget(t *testing.T) {
	for _, rtt := range []time.Duration{4 * ms, 40 * ms, 300 * ms} {
		f := Facts{Memory: 256 << 20, Content: 256 << 20, Rate: 100_000_000, RTT: rtt, Budget: time.Second, Tail: PackedTail}
		idle := Predict(f)
		f.Early, f.Budget = true, ms
		if got, want := Predict(f).Downtime, idle.Downtime; got != want {
			t.Errorf("RTT %v: %v, want %v", rtt, got, want)
		}
	}
}

func near(a, b float64) bool { return a > b*0.999 && a < b*1.001 }

// TestPredictNoThrottle: a guest is not foreseen to be throttled whose pause is within its budget as it is.
func TestPredictNoThrottle(t *testing.T) {
	const written = 40 << 20
	for budget, throttled := range map[time.Duration]bool{300 * ms: true, time.Minute: false} {
		f := Predict(Facts{
			Memory: 4 * written, Content: 2 * written, Rate: 80_000_000, RTT: 40 * ms, DirtyRate: 25e6, Written: written, MostThrottle: 90, Budget: budget,
		})
		if (f.Throttled > 0) != throttled || (f.Downtime > time.Second) == throttled || f.Downtime > budget {
			t.Errorf("within %v: throttled to %d %%, a pause of %v", budget, f.Throttled, f.Downtime)
		}
	}
}

// TestPredictIsMonotone: a faster path never costs more, a larger or busier guest
// never less, and a round that never ends is not foreseen.
func TestPredictIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Content: rapid.Int64Range(0, 64<<30).Draw(t, "content"), Memory: rapid.Int64Range(0, 64<<30).Draw(t, "memory"), Known: rapid.Int64Range(0, 64<<30).Draw(t, "known"),
			Zero: rapid.Float64Range(0, 9).Draw(t, "zero"), Speed: rapid.SampledFrom([]int64{0, 10 << 20, 1 << 30}).Draw(t, "speed"),
			Written: rapid.SampledFrom([]int64{0, 1 << 20, 1 << 30}).Draw(t, "written"),
			Follows: rapid.Bool().Draw(t, "follows"), Early: rapid.Bool().Draw(t, "early"),
			Rate: rapid.Int64Range(1_000_000, 100_000_000_000).Draw(t, "rate"), RTT: time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "rtt")),
			Stopped:   rapid.Bool().Draw(t, "stopped"),
			DirtyRate: rapid.Int64Range(0, 10<<30).Draw(t, "dirty"), Ratio: rapid.Float64Range(0.01, 1).Draw(t, "ratio"), Budget: 300 * ms,
		}
		more := rapid.Int64Range(0, 1<<30).Draw(t, "more")
		base, faster, larger, busier := f, f, f, f
		faster.Rate += more
		larger.Content += more
		larger.Memory += more
		busier.DirtyRate += more
		if f.Speed == 0 { // while slow hosts work, a faster path has more of what is written meanwhile
			costs(t, "faster", base, faster)
		}
		costs(t, "larger", larger, base)
		costs(t, "busier", busier, base)
		p := Predict(f)
		if p.WireBytes < tail || p.Migration < preparing || p.Downtime < load {
			t.Fatalf("%+v", p)
		}
	})
}

// costs checks that a costs at least as much as b, but for rounding; and, where the same is written again and again,
// for one round: copying ends that much sooner where rounds gain nothing, with one that is shorter than the budget, and
// leaves some more or less, a third at most, to a pause that no budget bounds.
func costs(t *rapid.T, what string, a, b Facts) {
	x, y := Predict(a), Predict(b)
	less, fewer, still := ms, int64(1), ms
	if a.Written > 0 {
		still = max(ms, y.Downtime/3)
		less, fewer = a.Budget+5*ms, int64(a.Budget.Seconds()*float64(b.Rate)/8)
	}
	if x.Migration+less < y.Migration || x.Downtime+still < y.Downtime || x.WireBytes+fewer < y.WireBytes {
		t.Fatalf("%s: %+v costs %+v, %+v costs %+v", what, a, x, b, y)
	}
}

// TestPredictAtTheExtremes: the largest guest over the slowest way takes a long time, and not less than none.
func TestPredictAtTheExtremes(t *testing.T) {
	for _, rate := range []int64{1, 8_000, 100_000_000} {
		for _, f := range []Facts{{}, {Stopped: true}, {Early: true}, {Follows: true}} {
			f.Memory, f.Content, f.Disks, f.DirtyRate, f.Rate = 1<<46, 1<<46, DiskFacts{Bytes: 1 << 60, Packed: 1 << 60}, 1<<40, rate
			if got := Predict(f); got.Migration < time.Hour || got.Downtime < 0 || got.WireBytes < f.Memory {
				t.Errorf("%d bit/s, %+v: %+v", rate, f, got)
			}
		}
	}
}
