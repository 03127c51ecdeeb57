package policy

import (
	"math"
	"time"
)

// What one TCP connection carries, as far as its path tells beforehand.
const (
	segment  = 1448                   // bytes of a packet of 1500, with timestamps
	initial  = 10                     // segments that go before the first acknowledgement (RFC 6928)
	leastRTO = 200 * time.Millisecond // Linux's
)

// Loses is what a path loses: of each packet the share that does not arrive, as a connection over it sees its round trips.
type Loses struct {
	Share float64
	RTT   time.Duration
}

// Carries is how many bytes per second one connection carries whose congestion control takes each loss for congestion (Reno,
// and CUBIC, which is like it where windows are small, RFC 9438 4.3): Padhye, Firoiu, Towsley, Kurose (1998), equation 30,
// each segment acknowledged. 0: it loses nothing, or takes no time.
func (l Loses) Carries() int64 {
	if l.Share <= 0 || l.RTT <= 0 {
		return 0
	}
	p := min(l.Share, 1)
	rto := (leastRTO + l.RTT).Seconds()
	wait := l.RTT.Seconds()*math.Sqrt(2*p/3) + rto*min(1, 3*math.Sqrt(3*p/8))*p*(1+32*p*p)
	return max(1, int64(segment/wait))
}

// Arrives is how long so many bytes take there and back that are sent at once, and are of use as a whole, beside what the path takes for
// them: what is lost is sent again a round trip later, and may be lost again. Of n packets of which each gets through with 1-p the last
// does so after the time in which n·p^k falls below one.
func (l Loses) Arrives(bytes float64) time.Duration {
	packets := bytes/segment + 1
	if l.Share <= 0 || l.Share >= 1 || packets*l.Share < 0.5 { // more likely none is lost
		return l.RTT
	}
	return l.RTT + time.Duration(max(1, math.Log(packets)/math.Log(1/l.Share))*float64(l.RTT))
}

// startup is what a connection takes to get going beside the time that its bytes take at full rate, of bytes per
// second: each round trip carries twice as much as the one before, until the path is full. Few bytes are there before
// that.
func startup(bytes, carried float64, rtt time.Duration) time.Duration {
	full := carried * rtt.Seconds() // on their way at once
	doublings := math.Log2(min(bytes, full) / (initial * segment))
	if doublings <= 1 {
		return 0
	}
	return seconds((doublings - 1) * rtt.Seconds())
}
