package proxy

import (
	"testing"
	"time"
)

// TestUnderWay sends over a lane of some rate and round trip as awaitRaw does: the lane is full soon, what waits before
// it stays short, and both stay so when it gets slower.
func TestUnderWay(t *testing.T) {
	const step = 2 * time.Millisecond
	for name, link := range map[string]struct {
		rate, later float64 // bytes per second; after 20 s
		rtt         time.Duration
	}{
		"LAN":             {100e6, 100e6, time.Millisecond},
		"long and fast":   {25e6, 25e6, 150 * time.Millisecond},
		"slow":            {1.25e6, 1.25e6, 40 * time.Millisecond},
		"slower later":    {12.5e6, 6e6, 20 * time.Millisecond},
		"very long, slow": {2.5e6, 2.5e6, 600 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			var u underWay
			var sent, drained, arrived float64
			var line []float64 // what had left the queue, a step each: heard of an RTT later
			start, rate := time.Unix(0, 0), link.rate
			for at := time.Duration(0); at < 40*time.Second; at += step {
				if at == 20*time.Second {
					rate = link.later
				}
				drained = min(sent, drained+rate*step.Seconds())
				line = append(line, drained)
				if n := len(line) - int(link.rtt/step); n > 0 {
					arrived = line[n-1]
				}
				u.see(start.Add(at), int64(arrived))
				for sent-arrived <= float64(u.most(link.rtt)) {
					sent += rawPiece
				}
				u.full = true
				settled := at > 15*time.Second && at < 20*time.Second || at > 30*time.Second
				if queued := (sent - drained) / rate; settled && queued > 0.1+leastRaw/rate {
					t.Fatalf("after %s %.0f ms wait", at, queued*1000)
				}
				if at == 20*time.Second-step && drained < 0.8*rate*20 {
					t.Errorf("%.1f MB in 20 s, of a lane of %.1f MB/s", drained/1e6, rate/1e6)
				}
			}
			if got := u.rate(); got < 0.95*rate || got > 1.05*rate {
				t.Errorf("%.2f MB/s are taken to be carried, of %.2f", got/1e6, rate/1e6)
			}
		})
	}
}
