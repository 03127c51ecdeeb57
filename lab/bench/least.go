package bench

import (
	"godwit/internal/units"
	"godwit/lab/report"
)

// links carry a copy: one path, or two, of which the second may be cut for good meanwhile.
type links struct {
	first, second float64 // bit/s
	cut           float64 // of the second, seconds after the copy began; 0: it is not cut
}

// links of a situation. What it says is known, so an error is one of ours.
func (s situation) links() links {
	rate := func(text string) float64 {
		n, err := units.Rate(text)
		if err != nil {
			panic("bench: " + err.Error())
		}
		return float64(n)
	}
	l := links{first: rate(s.Rate)}
	if s.SecondRate != "" {
		l.second = rate(s.SecondRate)
	}
	if s.Cut != "" {
		after, err := units.Duration(s.Cut)
		if err != nil {
			panic("bench: " + err.Error())
		}
		l.cut = after.Seconds()
	}
	return l
}

// carry is how many bits they carry in so many seconds from the copy's beginning.
func (l links) carry(seconds float64) float64 {
	second := seconds
	if l.cut > 0 {
		second = min(second, l.cut)
	}
	return l.first*seconds + l.second*second
}

// take is how many seconds so many bits take, from the copy's beginning.
func (l links) take(bits float64) float64 {
	seconds := bits / (l.first + l.second)
	if l.cut > 0 && seconds > l.cut {
		return (bits - l.second*l.cut) / l.first
	}
	return seconds
}

// leastTime is what the links take for the least of bytes. A migration's time has more in it: what is agreed on before
// the first byte, and the pause.
func leastTime(l links) Measure {
	return last("least time", "s", "least_bytes", func(m report.Migration) *float64 {
		if m.LeastBytes == nil {
			return nil
		}
		seconds := l.take(8 * float64(*m.LeastBytes))
		return &seconds
	})
}

func overLeastTime(l links) Measure {
	return both("memory/least", "", memoryTime, leastTime(l), over)
}
