package lab

import (
	"maps"
	"net/netip"
	"slices"
)

// holdings say which guest has had which address, and what the edges had counted of it when: agents give an
// address that is free to the next guest that comes, and what passed for the one is no packet of the other. Nor is
// it anybody's what clients go on sending to an address that its guest has given up: tries to join it, for many seconds.
type holdings struct {
	now   map[netip.Addr]string // who has it
	of    map[string]map[netip.Addr]*holding
	moved map[string]map[netip.Addr]flowCount // the edges' counts before each guest may have got another's addresses the last time
	ungot map[netip.Addr]bool                 // next addresses of moves that came to nothing: clients may have been told of them
}

// holding is what one guest has had of an address.
type holding struct {
	past flowCount // what passed in times before that ended
	from flowCount // the edges' count when it got it the last time
	open bool      // it has it, or nobody else
	seen flowCount // the edges' count when it was known to have it, or its handover was done, the last time
	gone bool      // it has given it up: what goes there since seen is not its; what comes from there may be late
	back flowCount // of one that is gone: the edges' count before it may have got it again
	sent int64     // of one that is gone: how many packets from it the guest itself has counted; or unread
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
	if h.ungot[a] { // what came before this move is nobody's
		mine.from = h.moved[guest][a]
	}
	if held { // who is the first has had all that was counted
		before := h.of[holder][a]
		mine.from = h.gotBy(guest, a, before, counted)
		before.past, before.open = before.past.plus(before.since(mine.from)), false
	}
	h.now[a] = guest
}

// gotBy is what the edges had counted of an address when a guest got it that another had had: as its move began, if that was
// after the other was known to have it, as it is noticed only when it has been there for some time.
func (h *holdings) gotBy(guest string, a netip.Addr, before *holding, counted flowCount) flowCount {
	began, ok := h.moved[guest][a]
	if !ok || began.toGuest < before.seen.toGuest || began.fromGuest < before.seen.fromGuest {
		return counted
	}
	return began
}

// notGot notes next addresses that a guest did not get.
func (h *holdings) notGot(addrs []netip.Addr) {
	if h.ungot == nil {
		h.ungot = map[netip.Addr]bool{}
	}
	for _, a := range addrs {
		h.ungot[a] = true
	}
}

// everybodys are the addresses that any guest has, had, or was to get.
func (h *holdings) everybodys() map[netip.Addr]bool {
	out := maps.Clone(h.ungot)
	if out == nil {
		out = map[netip.Addr]bool{}
	}
	for a := range h.now {
		out[a] = true
	}
	return out
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

// moving notes the edges' counts before a guest may get again what it had given up, or what another had.
func (h *holdings) moving(guest string, counts map[netip.Addr]flowCount) {
	if h.moved == nil {
		h.moved = map[string]map[netip.Addr]flowCount{}
	}
	h.moved[guest] = maps.Clone(counts)
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
			held.from.fromGuest += max(held.past.fromGuest+held.back.fromGuest-held.from.fromGuest-held.sent, 0) // see got
		case !has && held.open && !held.gone:
			held.past.toGuest += held.seen.toGuest - held.from.toGuest
			held.gone, held.back, held.sent = true, held.seen, unread
		}
	}
}

// got takes note of what a guest itself has counted of each address. What came to one that it has given up had passed
// the edges, too, though they were looked at last before. What it counts of packets from there are those of before it
// gave it up: if more have passed the edges, they were its kernel's last tries, which it does not count. anew: it was
// booted again, and counts from then on.
func (h *holdings) got(guest string, packets map[netip.Addr]flowCount, anew bool) {
	for a, held := range h.of[guest] {
		if !held.gone {
			continue
		}
		if held.sent = packets[a].fromGuest; anew {
			held.sent = unread
		}
		if more := packets[a].toGuest - held.past.toGuest; more > 0 {
			held.past.toGuest += more
			held.back.toGuest += more
		}
	}
}

// passed is what of the edges' counts of each address was the guest's. It may have got another since they were counted.
func (h *holdings) passed(guest string, counts map[netip.Addr]flowCount, addrs map[netip.Addr]bool) map[netip.Addr]flowCount {
	out := map[netip.Addr]flowCount{}
	for a, held := range h.of[guest] {
		out[a] = held.past
		if held.open && addrs[a] {
			out[a] = out[a].plus(held.since(counts[a]))
		}
	}
	return out
}

// missing is what one end has counted of each address and not the other: where that has more, nothing. anew: the guest
// was booted again, and what it had counted before is not among its own; only what changes from then on tells anything.
func missing(edge, own map[netip.Addr]flowCount, anew bool) map[netip.Addr]flowCount {
	out := map[netip.Addr]flowCount{}
	for a, n := range edge {
		if n = (flowCount{n.toGuest - own[a].toGuest, own[a].fromGuest - n.fromGuest}); !anew {
			n = flowCount{max(n.toGuest, 0), max(n.fromGuest, 0)}
		}
		out[a] = n
	}
	return out
}

// total is of all addresses.
func total(counts map[netip.Addr]flowCount) (sum flowCount) {
	for _, n := range counts {
		sum = sum.plus(n)
	}
	return sum
}

func (c flowCount) plus(o flowCount) flowCount {
	return flowCount{c.toGuest + o.toGuest, c.fromGuest + o.fromGuest}
}

func (c flowCount) minus(o flowCount) flowCount {
	return flowCount{c.toGuest - o.toGuest, c.fromGuest - o.fromGuest}
}
