package policy

import (
	"cmp"
	"slices"
	"time"
)

// EvacuateWidth is how many guests of a host move at once, where nobody says otherwise: while
// one is checked, prepared or handed over, which is waiting for round trips, another fills
// the paths. More would only share the same paths, and each would copy longer against what
// its guest writes.
const EvacuateWidth = 2

// Evacuee is a guest that leaves its host with all others.
type Evacuee struct {
	Name   string
	Memory int64 // bytes that it needs at a destination
	Offers []Offer
}

// Offer is of a host that can take a guest.
type Offer struct {
	Host string
	Free int64         // bytes of memory that the host has for guests; below 0: unknown
	Time time.Duration // predicted migration time
}

// Assignment is where an evacuated guest goes.
type Assignment struct {
	Guest  string
	Offers []Offer // the chosen one, then what else it could take, best first; none: nothing has room
}

// Evacuate chooses where each guest goes, and in which order they begin. The largest
// chooses first, as it has the least choice; a host's memory is given away once, and among
// hosts with room that one is taken whose guests would all be there first. The guest that is
// fastest to move begins, so that at any time as many as can be are away.
func Evacuate(guests []Evacuee) []Assignment {
	largest := slices.Clone(guests)
	slices.SortStableFunc(largest, func(a, b Evacuee) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.Name, b.Name))
	})
	given, busy := map[string]int64{}, map[string]time.Duration{} // by host
	var out []Assignment
	for _, g := range largest {
		var room []Offer
		for _, o := range g.Offers {
			if o.Free < 0 || o.Free-given[o.Host] >= g.Memory {
				room = append(room, o)
			}
		}
		slices.SortStableFunc(room, func(a, b Offer) int {
			return cmp.Or(
				cmp.Compare(busy[a.Host]+a.Time, busy[b.Host]+b.Time),
				cmp.Compare(b.Free-given[b.Host], a.Free-given[a.Host]),
				cmp.Compare(a.Host, b.Host),
			)
		})
		if len(room) > 0 {
			given[room[0].Host] += g.Memory
			busy[room[0].Host] += room[0].Time
		}
		out = append(out, Assignment{g.Name, room})
	}
	slices.SortStableFunc(out, func(a, b Assignment) int {
		return cmp.Or(cmp.Compare(a.time(), b.time()), cmp.Compare(a.Guest, b.Guest))
	})
	return out
}

// time is how long the guest's move takes, where it goes somewhere.
func (a Assignment) time() time.Duration {
	if len(a.Offers) == 0 {
		return 1<<63 - 1
	}
	return a.Offers[0].Time
}
