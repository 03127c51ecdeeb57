package follow

import (
	"slices"
	"time"

	"godwit/netstate/mptcp"
)

// A client that takes no address answers each announcement all the same, by an acknowledgement that repeats it (RFC
// 8684 §3.4.1), within a round trip of it, or of the kernel's next try: so one that was not heard then was out of reach.
// Of one that was heard later it is not known whether it was told.
const (
	// answersIn is how long after it was told last a client may answer.
	answersIn = 2 * time.Second
	// tick is how far the kernel's times may be off.
	tick = 20 * time.Millisecond
)

// hear takes note of c, which is behind, where its client was heard soon after it was told last. The kernel knows when
// that was the last time: between two lists (see wait) somebody who is heard all the time must be heard soon.
func (w *watch) hear(c mptcp.Connection) {
	since, within := time.Since(w.spoke), max(answersIn, 2*w.repeats, 12*w.listing)
	for _, s := range c.Subflows {
		after := since - s.Silent
		if s.State == mptcp.StateEstablished && slices.Contains(w.params.Old, s.Local.Addr()) && after > -tick && after < within {
			if w.heard == nil {
				w.heard = make(map[uint32]bool)
			}
			w.heard[c.Token] = true
		}
	}
}
