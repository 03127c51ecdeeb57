package lab

import "net/netip"

// holdings say which guest has had which address, and what the edges had counted of it when: agents give an
// address that is free to the next guest that comes, and what passed for the one is no packet of the other.
type holdings struct {
	now map[netip.Addr]string // who has it
	of  map[string]map[netip.Addr]*holding
}

// holding is what one guest has had of an address.
type holding struct {
	past flowCount // what passed in times before that ended
	from flowCount // the edges' count when it got it the last time
	open bool      // it has it
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
	if held && (holder == guest || longAgo) {
		return
	}
	mine := h.of[guest][a]
	if mine == nil {
		mine = &holding{}
		h.of[guest][a] = mine
	}
	mine.open = true
	if held { // who is the first has had all that was counted
		mine.from = counted
		before := h.of[holder][a]
		before.past, before.open = before.past.plus(counted.minus(before.from)), false
	}
	h.now[a] = guest
}

// passed is what of the edges' counts of addrs was the guest's. It may have got another since they were counted.
func (h *holdings) passed(guest string, counts map[netip.Addr]flowCount, addrs map[netip.Addr]bool) (sum flowCount) {
	for a, held := range h.of[guest] {
		sum = sum.plus(held.past)
		if held.open && addrs[a] {
			sum = sum.plus(counts[a].minus(held.from))
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
