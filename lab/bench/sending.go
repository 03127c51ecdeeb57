package bench

import (
	"slices"

	"godwit/lab/report"
)

// sendingShare is linkShare while a copy sends: from when its first bytes have left until the switch begins. What comes
// before (QEMU begins, the destination is told of the guest) and after (the pause) is no time in which memory could be
// sent. What the congestion control takes to get going is counted, and the last rounds, in which little is left to
// send.
func sendingShare(l links) Measure {
	m := last("link while it sends", "%", "wire_bytes", func(m report.Migration) *float64 { return scaled(m.WireBytes, 1) })
	whole := m.Of
	m.Of = func(r *report.Report) (*float64, string) {
		if sent, why := whole(r); sent == nil {
			return nil, why
		}
		m := r.Migrations[len(r.Migrations)-1]
		copied, from, to, ok := sends(r.Series, m)
		if !ok {
			return nil, "no series of what left by each path"
		}
		share := 100 * (sentUntil(r.Series, to) - sentUntil(r.Series, from)) * 8 / (l.carry(to-copied) - l.carry(from-copied))
		return &share, ""
	}
	return m
}

// firstBytes have left when a copy sends: more than what lanes say to each other before.
const firstBytes = 100e3

// sends is when a migration's copy begins, and when it begins and ends to send, of the run's samples (one each 0.2 s or
// so).
func sends(s *report.Series, m report.Migration) (copied, from, to float64, ok bool) {
	at := func(phase string) (float64, bool) {
		i := slices.IndexFunc(m.Phases, func(p report.Phase) bool { return p.Name == phase })
		if i < 0 {
			return 0, false
		}
		return m.RequestedS + m.Phases[i].StartS, true
	}
	copied, began := at("copy")
	switched, ended := at("switch")
	if s == nil || !began || !ended {
		return 0, 0, 0, false
	}
	from = copied
	for _, p := range s.Paths {
		for _, t := range p.T {
			if t > switched || t < copied {
				continue
			}
			if sentUntil(s, t)-sentUntil(s, copied) <= firstBytes {
				from = max(from, t)
			}
			to = max(to, t)
		}
	}
	return copied, from, to, to > from
}

// sentUntil is what had left by all paths at a time, as far as it was read by then.
func sentUntil(s *report.Series, at float64) (bytes float64) {
	for _, p := range s.Paths {
		for i := len(p.T) - 1; i >= 0; i-- {
			if p.T[i] <= at {
				bytes += p.Bytes[i]
				break
			}
		}
	}
	return bytes
}
