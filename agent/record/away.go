package record

import (
	"net/netip"
	"strings"

	"godwit/migration"
	"godwit/vm/guest"
)

// Away are the clients of those that are tunnelled as they were out of reach when they were told of the next address.
func (s *Survival) Away() (away []netip.AddrPort) {
	for _, c := range s.Connections {
		if c.Fate == migration.Tunnelled && c.Kind == guest.KindMPTCP && strings.HasPrefix(c.Why, guest.WhyAway) {
			away = append(away, c.Remote)
		}
	}
	return away
}

// ToldAgain notes why those stay that were told again and have not come, and says whether that is another reason. One
// that begins as the old one is none: it would be taken for that the next time, and grow.
func (s *Survival) ToldAgain(unable []guest.Unable) (changed bool) {
	for i := range s.Connections {
		c := &s.Connections[i]
		rest, away := strings.CutPrefix(c.Why, guest.WhyAway)
		if c.Fate != migration.Tunnelled || !away {
			continue
		}
		for _, u := range unable {
			if u.Remote == c.Remote && !strings.HasPrefix(u.Why, guest.WhyAway) {
				c.Why, changed = u.Why+rest, true
			}
		}
	}
	if changed {
		s.fit()
	}
	return changed
}
