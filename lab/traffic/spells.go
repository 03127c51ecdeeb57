package traffic

import (
	"math"
	"time"
)

// spell is a time in which a prober asked somebody, unix ns; to is 0 while it lasts.
type spell struct{ from, to int64 }

// spellsWith is what spells are when from a time on somebody is asked, or nobody.
func spellsWith(spells []spell, at int64, asking bool) []spell {
	n := len(spells)
	switch lasts := n > 0 && spells[n-1].to == 0; {
	case asking && !lasts:
		return append(spells, spell{from: at})
	case !asking && lasts:
		spells[n-1].to = at
	}
	return spells
}

// probeWait is a time without reply, [from, to) in unix ns, and how long of it a reply could have come.
type probeWait struct {
	from, to int64
	lasted   time.Duration
}

// waitsOf lists a prober's times without reply, in order; none reaches beyond a spell. The first one of
// a spell lasted until the first probe that was answered left: before its round trip no reply could be
// there. Nothing is known of what never answered, nor of what came later than until.
func waitsOf(replies []Reply, spells []spell, until int64) []probeWait {
	var out []probeWait
	if len(replies) == 0 {
		return nil
	}
	for _, s := range spells {
		end := until
		if s.to != 0 {
			end = min(s.to, until)
		}
		last, first := s.from, true
		for len(replies) > 0 && replies[0].Time < end {
			x := replies[0]
			replies = replies[1:]
			if x.Time < s.from { // late, of the spell before
				continue
			}
			lasted := x.Time - last
			if first {
				lasted = max(x.Sent-last, 0)
			}
			out = append(out, probeWait{last, x.Time, time.Duration(lasted)})
			last, first = x.Time, false
		}
		if end > last {
			out = append(out, probeWait{last, end, time.Duration(end - last)})
		}
	}
	return out
}

// silence is the longest time without one of some replies in a window, which may all be missing: of what
// was before the window nothing counts.
func silence(replies []Reply, spells []spell, from, to, until int64) (time.Duration, bool) {
	var within []spell
	for _, s := range spells {
		if s.to == 0 || s.to > from {
			within = append(within, spell{max(s.from, from), s.to})
		}
	}
	never := Reply{Sent: math.MaxInt64, Time: math.MaxInt64} // which lets a spell without any be one wait
	return downtime(waitsOf(append(replies, never), within, until), from, to)
}

// downtime is the longest of the waits that overlap a window, which are in order.
func downtime(waits []probeWait, from, to int64) (longest time.Duration, known bool) {
	if to <= from {
		return 0, false
	}
	for _, w := range waits {
		if w.from >= to {
			break
		}
		if w.to > from {
			longest, known = max(longest, w.lasted), true
		}
	}
	return longest, known
}
