package uplinks

import "time"

// Goodput estimates what the paths carry, from a running total. Times without a
// byte do not count: QEMU held with nothing to send says nothing of the paths.
type Goodput struct {
	at    time.Time
	bytes int64
	rate  float64
}

// goodputWindow is how long a sample takes.
const goodputWindow = 250 * time.Millisecond

// See takes the total at now, and returns bytes per second; 0: not known yet.
func (g *Goodput) See(now time.Time, total int64) int64 {
	if g.at.IsZero() {
		g.at, g.bytes = now, total
		return 0
	}
	if d := now.Sub(g.at); d >= goodputWindow {
		sample := float64(total-g.bytes) / d.Seconds()
		if sample > g.rate/2 || g.rate == 0 {
			g.rate += (sample - g.rate) * 0.5
		} else if sample > g.rate/20 { // a slower path counts, an idle one does not
			g.rate += (sample - g.rate) * 0.1
		}
		g.at, g.bytes = now, total
	}
	return int64(g.rate)
}
