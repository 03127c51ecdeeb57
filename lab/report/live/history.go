package live

import (
	"math"
	"strings"
	"time"
)

// remembered is how far back the small curves reach, a column for each second.
const remembered = 30

// history is a ring of seconds: mean throughput and largest round-trip time.
type history struct {
	last  int // the second of the newest column
	count [remembered]int
	mbps  [remembered]float64 // sums
	rtt   [remembered]float64 // ms
}

// remember adds a flow's sample to its second.
func (v *View) remember(elapsed time.Duration, f Flow) {
	second := int(math.Floor(elapsed.Seconds()))
	h := v.past[f.Name]
	if h == nil {
		h = &history{last: second}
		v.past[f.Name] = h
	}
	for range min(max(second-h.last, 0), remembered) {
		h.last++
		h.clear(h.last)
	}
	h.last = max(h.last, second)
	i := slot(h.last)
	h.count[i]++
	h.mbps[i] += f.Mbps
	h.rtt[i] = max(h.rtt[i], float64(f.RTT)/float64(time.Millisecond))
}

func slot(second int) int { return ((second % remembered) + remembered) % remembered }

func (h *history) clear(second int) {
	i := slot(second)
	h.count[i], h.mbps[i], h.rtt[i] = 0, 0, 0
}

// curves draws the last seconds, oldest at the left; blank where nothing was seen.
func (h *history) curves() (mbps, rtt string) {
	var m, r [remembered]float64
	for i := range remembered {
		k := slot(h.last - remembered + 1 + i)
		m[i], r[i] = math.NaN(), math.NaN()
		if h.count[k] > 0 {
			m[i] = h.mbps[k] / float64(h.count[k])
			r[i] = h.rtt[k]
		}
	}
	return spark(m[:]), spark(r[:])
}

var bars = []rune("▁▂▃▄▅▆▇█")

// spark draws values from zero to the largest.
func spark(values []float64) string {
	high := 0.0
	for _, x := range values {
		if !math.IsNaN(x) {
			high = max(high, x)
		}
	}
	var b strings.Builder
	for _, x := range values {
		switch {
		case math.IsNaN(x):
			b.WriteRune(' ')
		case high <= 0:
			b.WriteRune(bars[0])
		default:
			b.WriteRune(bars[min(len(bars)-1, max(0, int(x/high*float64(len(bars)))))])
		}
	}
	return b.String()
}
