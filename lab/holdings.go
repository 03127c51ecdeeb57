package lab

import (
	"net/netip"
	"slices"
)

// holdings say which guest has had which address, and what the edges had counted of it when: agents give an
// address that is free to the next guest that comes, and what passed for the one is no packet of the other. Nor is
// it anybody's what clients go on sending to an address that its guest has given up: tries to join it, for many seconds.
type holdings struct {
	now map[netip.Addr]string // who has it
	of  map[string]map[netip.Addr]*holding
}

// holding is what one guest has had of an address.
type holding struct {
	past flowCount // what passed in times before that ended
	from flowCount // the edges' count when it got it the last time
	open bool      // it has it, or nobody else
	seen flowCount // the edges' count when it was known to have it, or its handover was done, the last time
	gone bool      // it has given it up: what goes there since seen is not its; what comes from there may be late
	back flowCount // of one that is gone: the edges' count before it may have got it again
}

// known are the addresses that the guest has, or had.
func (h *holdings) known(guest string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for a := range h.of[guest] {
		out[a] = true
	}
	return out
}

// take says that a guest has an address, of which the edges have counted so much; another that had it has
// it no more. Where that is only what was said some time ago, it counts if nobody has it yet.
func (h *holdings) take(guest string, a netip.Addr, counted flowCount, longAgo bool) {
	if h.now == nil {
		h.now, h.of = map[netip.Addr]string{}, map[string]map[netip.Addr]*holding{}
	}
	if h.of[guest] == nil {
		h.of[guest] = map[netip.Addr]*holding{}
	}
	holder, held := h.now[a]
	if held && longAgo {
		return
	}
	mine := h.of[guest][a]
	if mine == nil {
		mine = &holding{}
		h.of[guest][a] = mine
	}
	mine.seen = counted
	if holder == guest {
		return
	}
	mine.open, mine.gone = true, false
	if held { // who is the first has had all that was counted
		mine.from = counted
		before := h.of[holder][a]
		before.past, before.open = before.past.plus(before.since(counted)), false
	}
	h.now[a] = guest
}

// since is what of an edge's count of an address was its guest's since it got it.
func (h *holding) since(counted flowCount) flowCount {
	n := counted.minus(h.from)
	if h.gone {
		n.toGuest = 0
	}
	return n
}

// handed notes the edges' counts as a guest's handover is done: what it gave up by then it had until then.
func (h *holdings) handed(guest string, counts map[netip.Addr]flowCount) {
	for a, held := range h.of[guest] {
		if !held.gone {
			held.seen = counts[a]
		}
	}
}

// moving notes the edges' counts before a guest may get again what it had given up.
func (h *holdings) moving(guest string, counts map[netip.Addr]flowCount) {
	for a, held := range h.of[guest] {
		held.back = counts[a]
	}
}

// keeps says which addresses a guest has, by its own host's word: others it has given up.
func (h *holdings) keeps(guest string, addrs []netip.Addr) {
	for a, held := range h.of[guest] {
		switch has := slices.Contains(addrs, a); {
		case has && held.gone:
			held.from.toGuest, held.gone = held.back.toGuest, false
		case !has && held.open && !held.gone:
			held.past.toGuest += held.seen.toGuest - held.from.toGuest
			held.gone, held.back = true, held.seen
		}
	}
}

// got takes note of what a guest itself has counted of what goes to each address: of one that it has given up that had passed the
// edges, too, though they were looked at last before.
func (h *holdings) got(guest string, packets map[netip.Addr]int64) {
	for a, held := range h.of[guest] {
		if more := packets[a] - held.past.toGuest; held.gone && more > 0 {
			held.past.toGuest += more
			held.back.toGuest += more
		}
	}
}

// passed is what of the edges' counts of addrs was the guest's. It may have got another since they were counted.
func (h *holdings) passed(guest string, counts map[netip.Addr]flowCount, addrs map[netip.Addr]bool) (sum flowCount) {
	for a, held := range h.of[guest] {
		sum = sum.plus(held.past)
		if held.open && addrs[a] {
			sum = sum.plus(held.since(counts[a]))
		}
	}
	return sum
}

func (c flowCount) plus(o flowCount) flowCount {
	return flowCount{c.toGuest + o.toGuest, c.fromGuest + o.fromGuest}
}

func (c flowCount) minus(o flowCount) flowCount {
	return flowCount{c.toGuest - o.toGuest, c.fromGuest - o.fromGuest}
}
