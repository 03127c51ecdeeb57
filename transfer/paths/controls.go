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

// appendControls appends those that this lane has to send, and says whether that is all.
func (l *lane) appendControls(buf []byte, now time.Time) ([]byte, bool) {
	before, shared := len(buf), int64(0) // shared: bytes of those that are for one lane, and on none
	for _, c := range l.s.outgoing {
		if !c.everywhere && len(c.on) == 0 {
			shared += int64(len(c.body))
		}
	}
	for _, c := range l.s.outgoing {
		if slices.Contains(c.on, l) || !c.everywhere && l.leaves(c, int64(len(buf)-before), shared, now) {
			continue
		}
		if len(buf) > controlsAtOnce {
			return buf, false
		}
		c.on = append(c.on, l)
		buf = wire.AppendControl(buf, c.number, c.topic, c.body)
	}
	return buf, true
}

// leaves says whether a control that is for one lane is left to others: it is on one that works, or some other would bring
// all of these, of so many bytes, before l brought this one after so many others; under mu.
func (l *lane) leaves(c *control, others, all int64, now time.Time) bool {
	if len(c.on) > 0 {
		return slices.ContainsFunc(c.on, func(on *lane) bool { return on.silent(now) < mute && !on.stuck(now) })
	}
	here, known := l.brings(others+int64(len(c.body)), now)
	return known && slices.ContainsFunc(l.s.lanes, func(other *lane) bool {
		if other == l || other.stuck(now) {
			return false
		}
		there, known := other.brings(all, now)
		return known && there < here
	})
}

// brings is how long so many bytes of controls would take to the other end, behind all that it has not read; under mu.
func (l *lane) brings(size int64, now time.Time) (time.Duration, bool) {
	sent := max(l.wrote, l.said)
	d, known := l.arrivalBehind(int64(sent-min(sent, l.peerRead)), size) //nolint:gosec // what is on its way
	return d + l.late(now), known
}
