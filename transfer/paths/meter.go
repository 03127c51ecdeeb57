package paths

import "time"

// meter tells what a path carries now, by looks at how many bytes were sent over it: less than it can where a limit
// says so, or where there is little to send.
type meter struct{ seen []reading } // the oldest first

type reading struct {
	sent int64
	at   time.Time
}

// meterSpan is over how long it goes, and meterEvery how far its looks are apart.
const (
	meterSpan  = time.Second
	meterEvery = 100 * time.Millisecond
)

func (m *meter) look(sent int64, now time.Time) {
	if n := len(m.seen); n > 0 && now.Sub(m.seen[n-1].at) < meterEvery {
		return
	}
	m.seen = append(m.seen, reading{sent, now})
	for len(m.seen) > 1 && now.Sub(m.seen[1].at) >= meterSpan {
		m.seen = m.seen[1:]
	}
}

// rate is bytes per second; 0: nothing goes, or nobody looked for long enough.
func (m *meter) rate(sent int64, now time.Time) int64 {
	if len(m.seen) == 0 || now.Sub(m.seen[0].at) < meterEvery {
		return 0
	}
	return int64(float64(sent-m.seen[0].sent) / now.Sub(m.seen[0].at).Seconds())
}
