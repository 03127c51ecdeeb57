package paths

import (
	"slices"
	"time"

	"godwit/transfer/wire"
)

// controlsAtOnce bounds what is written at once, bytes.
const controlsAtOnce = 64 << 10

// mute is a silence after which what is on that lane alone goes on another as well: controls are taken
// in order, so that those on every lane, which a guest may wait for, wait for it too.
const mute = 2 * wire.KeepAlive

// slowest is for how long a lane may have what is on it alone, however slow it is.
const slowest = time.Second

// appendControls appends those that this lane has to send, and says whether that is all. What is on no lane goes first:
// lanes share what is long, and what one of them is slow with goes on the others when nothing else is left. What the
// other end would not take yet waits.
func (l *lane) appendControls(buf []byte, now time.Time) ([]byte, bool) {
	taken := l.s.takeable()
	for _, again := range []bool{false, true} {
		for _, c := range taken {
			if again != (len(c.on) > 0) || slices.Contains(c.on, l) ||
				again && !c.everywhere && now.Sub(c.since) < slowest && slices.ContainsFunc(c.on, func(other *lane) bool { return other.silent(now) < mute }) {
				continue
			}
			if len(buf) > controlsAtOnce {
				return buf, false
			}
			if !again {
				c.since = now
			}
			c.on = append(c.on, l)
			buf = wire.AppendControl(buf, c.number, c.topic, c.body)
		}
	}
	return buf, len(taken) == len(l.s.outgoing)
}

// takeable are those of outgoing that the other end takes while the first of them has not come: so many, and so many
// bytes (see heardControl). There are more where frames come faster than what they miss is heard of. Under mu.
func (s *session) takeable() []*control {
	out, size := s.outgoing[:min(len(s.outgoing), mostAhead)], 0
	if s.waiting <= mostControls {
		return out
	}
	for i, c := range out {
		if size += len(c.body); size > mostControls && i > 0 {
			return out[:i]
		}
	}
	return out
}
