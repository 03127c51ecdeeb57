package uplinks

import "time"

// Goodput estimates what the paths carry, from a running total. Times without a
// byte do not count, nor do those with few of them, unless more waited all along: QEMU
// held with nothing to send says nothing of the paths.
type Goodput struct {
	at    time.Time
	bytes int64
	waits int64
	rate  float64
}

// goodputWindow is how long a sample takes.
const goodputWindow = 250 * time.Millisecond

// See takes the total at now, and how many more bytes are sent but not there yet, where that is known, on a way whose
// round trip takes so long; it returns bytes per second; 0: not known yet.
func (g *Goodput) See(now time.Time, total, waits int64, trip time.Duration) int64 {
	if g.at.IsZero() {
		g.at, g.bytes, g.waits = now, total, waits
		return 0
	}
	if d := now.Sub(g.at); d >= goodputWindow {
		carried := total - g.bytes
		sample := float64(carried) / d.Seconds()
		// Half a round trip's worth may be on its way whenever QEMU writes a little; where a socket holds no more than a
		// whole one's, all of it still shows.
		queued := float64(min(waits, g.waits)) - g.rate*trip.Seconds()/2
		switch {
		case sample > g.rate/2, g.rate == 0, carried > 0 && queued > float64(carried):
			g.rate += (sample - g.rate) * 0.5
		case sample > g.rate/20: // a slower path counts, an idle one does not
			g.rate += (sample - g.rate) * 0.1
		}
		g.at, g.bytes, g.waits = now, total, waits
	}
	return int64(g.rate)
}
