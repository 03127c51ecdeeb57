package policy

import (
	"testing"
	"time"
)

// TestBeside: what others send over the same paths takes its time, as much of it as they have, and no more than as much
// as this one or their limit; where the paths are not what is waited for, none; nor to a guest that stands still.
func TestBeside(t *testing.T) {
	const memory, rate = 100 << 20, 100_000_000
	copied := framing * memory / (carriedShare * rate / 8) // seconds
	for name, c := range map[string]struct {
		facts Facts
		want  float64 // times as long
	}{
		"alone":                         {Facts{}, 1},
		"one as long":                   {Facts{Beside: []Beside{{Left: framing * memory}}}, 2},
		"nobody knows how long":         {Facts{Beside: []Beside{{Left: -1}}}, 2},
		"one that is longer":            {Facts{Beside: []Beside{{Left: 10 * memory}}}, 2},
		"one that soon ends":            {Facts{Beside: []Beside{{Left: framing * memory / 4}}}, 1.25},
		"one that has sent all":         {Facts{Beside: []Beside{{}}}, 1},
		"two":                           {Facts{Beside: []Beside{{Left: -1}, {Left: framing * memory / 2}}}, 2.5},
		"one of low bandwidth":          {Facts{Beside: []Beside{{Left: -1, Most: carriedShare * rate / 5}}}, 1.25},
		"of high bandwidth":             {Facts{Beside: []Beside{{Left: -1, Most: rate}}}, 2},
		"its own bandwidth leaves room": {Facts{Paths: 4 * rate, Beside: []Beside{{Left: -1}}}, 1},
		"and none":                      {Facts{Paths: rate, Beside: []Beside{{Left: -1}}}, 2},
		"the hosts are slower":          {Facts{Speed: int64(memory / copied / 3), Beside: []Beside{{Left: -1}}}, 3},
	} {
		c.facts.Memory, c.facts.Content, c.facts.Rate, c.facts.RTT, c.facts.Budget = memory, memory, rate, 20*ms, 300*ms
		alone := c.facts
		alone.Beside, alone.Speed = nil, 0
		got := (Predict(c.facts).Migration - Predict(alone).Migration + seconds(copied)).Seconds() / copied
		if got < c.want*0.99 || got > c.want*1.01 {
			t.Errorf("%s: %.2f times as long, want %.2f", name, got, c.want)
		}
	}
	disk := Facts{Memory: memory, Content: memory, Rate: rate, Budget: 300 * ms, Disks: DiskFacts{Bytes: memory, Packed: memory}}
	before := Predict(disk).Migration
	for left, want := range map[int64]float64{0: 0, framing * memory: 1, -1: 2} {
		disk.Beside = []Beside{{Left: left}}
		if got := (Predict(disk).Migration - before).Seconds() / copied; got < want-0.01 || got > want+0.01 {
			t.Errorf("with a disk, of another %d bytes: %.2f times as long as memory takes more, want %.2f", left, got, want)
		}
	}
	still := Facts{Memory: memory, Content: memory, Rate: rate, Stopped: true, Budget: time.Minute}
	alone := Predict(still)
	still.Beside = []Beside{{Left: -1}}
	if got := Predict(still); got != alone {
		t.Errorf("a guest that stands still: %+v, and alone %+v", got, alone)
	}
}

// TestBesideSendsNoMore: no more of what a guest writes in a pass goes again than went in it, however long others
// make it; nor does more go of a guest whose rest follows it. What others have left once all was read makes what
// follows longer, too.
func TestBesideSendsNoMore(t *testing.T) {
	const memory = 256 << 20
	for name, c := range map[string]struct {
		facts Facts
		most  float64 // times as many bytes beside nine as alone
	}{
		"it writes little":             {Facts{DirtyRate: 1e5}, 1.1},
		"as fast as the paths carry":   {Facts{DirtyRate: 1 << 40}, 1},
		"the rest follows after some":  {Facts{DirtyRate: 10e6, Written: 200 << 20, Follows: true}, 1.1},
		"fast, and the rest follows":   {Facts{DirtyRate: 1 << 40, Follows: true}, 1},
		"it follows at once":           {Facts{DirtyRate: 10e6, Written: 200 << 20, Early: true}, 1},
		"it follows, and hosts matter": {Facts{DirtyRate: 10e6, Speed: 5e6, Follows: true}, 1.1},
	} {
		c.facts.Memory, c.facts.Content, c.facts.Rate, c.facts.RTT, c.facts.Budget = memory, memory, 100_000_000, 20*ms, 300*ms
		alone := Predict(c.facts)
		for range 9 {
			c.facts.Beside = append(c.facts.Beside, Beside{Left: -1})
		}
		beside := Predict(c.facts)
		if got := float64(beside.WireBytes) / float64(alone.WireBytes); got < 0.999 || got > c.most+0.001 {
			t.Errorf("%s: %d MB beside nine, %d MB alone, want %.1f times as many at most", name, beside.WireBytes/mega, alone.WireBytes/mega, c.most)
		}
		if c.facts.Beside[0].Left != -1 {
			t.Fatalf("%s: what it was asked with is changed: %+v", name, c.facts.Beside)
		}
	}
	f := Facts{Memory: memory, Content: memory, Rate: 100_000_000, RTT: 20 * ms, Budget: 300 * ms, DirtyRate: 6e6}
	var took []time.Duration
	for _, left := range []int64{memory * 104 / 100, memory * 208 / 100} {
		f.Beside = []Beside{{Left: left}}
		took = append(took, Predict(f).Migration)
	}
	if took[1] < took[0]+5*time.Second {
		t.Errorf("beside one that is as long: %v, and one that is twice as long: %v", took[0], took[1])
	}
}
