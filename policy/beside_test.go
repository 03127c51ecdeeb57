package policy

import (
	"testing"
	"time"
)

// TestBeside: what others send over the same paths takes its time, as much of it as they have, and no more than as much as this one or their limit; where
// the paths are not what is waited for, none; nor to a guest that stands still.
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
