package lanes

import "time"

// easing decides whether a lane may fill a path that carries guests' packets too as if it did not. What is left for
// them (sharedShare) idles while they send little, as it does in most copies; where they send more than that, packets
// begin to wait at the slowest link, which round trips tell, and the lane leaves it to them again. The zero value is
// ready for use.
type easing struct {
	eased bool
	since time.Time     // when it was
	again time.Time     // not before
	hold  time.Duration // for how long it was left to them the last time
}

const (
	// waitsMost is by how much round trips may be longer than the shortest: or an easeShare of that, if it is more. A
	// lane's own packets leave in bunches, and acknowledgements come in some.
	waitsMost = 5 * time.Millisecond
	easeShare = 16
	// holdLeast and holdMost are for how long a path is left to guests on which something waited: longer each time that
	// it came of filling it.
	holdLeast = 2 * time.Second
	holdMost  = 32 * time.Second
	// holdKept is for how long nothing has to wait for that to be forgotten.
	holdKept = 10 * time.Second
)

// see takes a round trip, as it is lately, and the shortest (0: none is known), and says whether the lane may fill the path.
func (e *easing) see(rtt, least time.Duration, now time.Time) bool {
	switch {
	case least == 0 || rtt > least+max(waitsMost, least/easeShare):
		if e.eased || e.hold == 0 {
			e.hold = min(max(2*e.hold, holdLeast), holdMost)
		}
		e.eased, e.again = false, now.Add(e.hold)
	case !e.eased && !now.Before(e.again):
		e.eased, e.since = true, now
	case e.eased && now.Sub(e.since) > holdKept:
		e.hold = 0
	}
	return e.eased
}
