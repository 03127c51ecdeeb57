package agent

import "time"

// Each host stamps what it sees by its own clock. The destination's is compared with ours in check; but that asks for
// much else, and the comparison may be wrong by half of the time which that takes. And between it and the switch may
// lie hours of copying, in which clocks drift apart, or one of them is stepped. So the answer that the guest runs says
// what time it is there, too: how long the guest stood still is known by that.

// compareClocks is for such an answer: what the destination's clock showed as it left (unix ns; 0: an agent of before,
// which does not say), and when it was asked for and heard, by ours.
func (m *outgoing) compareClocks(there int64, asked, heard time.Time) {
	if there != 0 {
		m.work.skew = skewBy(m.work.skew, there, m.rec.Stamp(asked), m.rec.Stamp(heard), m.link.Trip())
	}
}

// skewBy is how far the other clock is ahead, by such an answer, over a path of that round trip; before: as was known
// so far. Two clocks that nothing tells apart are taken to be equal.
func skewBy(before time.Duration, there, asked, heard int64, trip time.Duration) time.Duration {
	least, most := time.Duration(there-heard), time.Duration(there-asked) // it left in between
	if before == 0 && least <= 0 && most >= 0 {
		return 0
	}
	return min(least+trip/2, most)
}
