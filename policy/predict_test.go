package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPredict(t *testing.T) {
	const memory = 256 << 20
	bytesPerSecond := 0.95 * 1e8 / 8
	second := func(bytes float64) time.Duration { return time.Duration(bytes / bytesPerSecond * 1e9) }
	for _, c := range []struct {
		name  string
		facts Facts
		wire  float64 // bytes without the tail
	}{
		{"all touched", Facts{Touched: memory, Memory: memory}, memory},
		{"a ratio", Facts{Touched: memory, Memory: memory, Ratio: 0.5}, memory / 2},
		{"untouched pages cost a marker", Facts{Memory: memory}, memory / 4096 * zeroMarker},
		{"more touched than there is", Facts{Touched: memory, Memory: memory / 2}, memory},
		{"half of each round is written again", Facts{Touched: memory, Memory: memory, DirtyRate: int64(bytesPerSecond / 2)}, 2 * memory},
		{"written faster than sent", Facts{Touched: memory, Memory: memory, DirtyRate: 1 << 40}, 20 * memory},
		{"as fast as sent, and throttled", Facts{Touched: memory, Memory: memory, DirtyRate: int64(bytesPerSecond), MostThrottle: 90}, 2 * memory},
		{"throttling is not enough", Facts{Touched: memory, Memory: memory, DirtyRate: 1 << 40, MostThrottle: 90}, 20 * memory},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.facts.Rate, c.facts.RTT, c.facts.Budget = 100_000_000, 20*ms, 300*ms
			f := Predict(c.facts)
			if !near(float64(f.WireBytes), c.wire+tail) {
				t.Errorf("wire bytes %d, want %.0f", f.WireBytes, c.wire+tail)
			}
			if want := setup + 160*ms + second(c.wire); !near(float64(f.Migration), float64(want)) {
				t.Errorf("migration %v, want %v", f.Migration, want)
			}
		})
	}
	stopped := Facts{Touched: memory, Memory: memory, Disk: 1 << 30, Rate: 100_000_000, RTT: 20 * ms, Budget: 300 * ms, Stopped: true}
	if f, want := Predict(stopped), load+10*ms+second(memory+tail); !near(float64(f.Downtime), float64(want)) {
		t.Errorf("stop-and-copy: downtime %v, want that of the whole copy, without disks, %v", f.Downtime, want)
	}
	if a, b := Predict(Facts{Touched: memory}), Predict(Facts{Touched: memory, Rate: assumedRate}); a != b {
		t.Errorf("unknown rate: %+v, want %+v", a, b)
	}
}

func near(a, b float64) bool { return a > b*0.999 && a < b*1.001 }

// TestPredictIsMonotone: a faster path never costs more, a larger or busier guest
// never less, and a round that never ends is not foreseen.
func TestPredictIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Facts{
			Touched: rapid.Int64Range(0, 64<<30).Draw(t, "touched"), Memory: rapid.Int64Range(0, 64<<30).Draw(t, "memory"),
			Rate: rapid.Int64Range(1_000_000, 100_000_000_000).Draw(t, "rate"), RTT: time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "rtt")),
			Stopped:   rapid.Bool().Draw(t, "stopped"),
			DirtyRate: rapid.Int64Range(0, 10<<30).Draw(t, "dirty"), Ratio: rapid.Float64Range(0.01, 1).Draw(t, "ratio"), Budget: 300 * ms,
		}
		more := rapid.Int64Range(0, 1<<30).Draw(t, "more")
		base, faster, larger, busier := f, f, f, f
		faster.Rate += more
		larger.Touched += more
		larger.Memory += more
		busier.DirtyRate += more
		costs(t, "faster", base, faster)
		costs(t, "larger", larger, base)
		costs(t, "busier", busier, base)
		p := Predict(f)
		once := float64(f.Touched) + float64(f.Memory)/4096*zeroMarker + tail
		if p.WireBytes < tail || float64(p.WireBytes) > 20*once*1.001 {
			t.Fatalf("wire bytes %d of a guest of %.0f", p.WireBytes, once)
		}
		if p.Migration < setup || p.Downtime < load {
			t.Fatalf("%+v", p)
		}
	})
}

// costs checks that a costs at least as much as b, but for rounding.
func costs(t *rapid.T, what string, a, b Facts) {
	x, y := Predict(a), Predict(b)
	if x.Migration+ms < y.Migration || x.Downtime+ms < y.Downtime || x.WireBytes+1 < y.WireBytes {
		t.Fatalf("%s: %+v costs %+v, %+v costs %+v", what, a, x, b, y)
	}
}
