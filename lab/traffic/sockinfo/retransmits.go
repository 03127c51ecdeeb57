package sockinfo

import "net/netip"

// Retransmits sums over all subflows that a socket ever had: the kernel
// forgets a subflow's count when it closes. The zero value is ready.
type Retransmits struct {
	seen map[[2]netip.AddrPort]uint32
}

// Add takes note of the subflows' counts and returns the sum so far.
func (r *Retransmits) Add(subflows []Subflow) uint32 {
	if r.seen == nil {
		r.seen = map[[2]netip.AddrPort]uint32{}
	}
	for _, s := range subflows {
		key := [2]netip.AddrPort{s.Local, s.Remote}
		r.seen[key] = max(r.seen[key], s.Retransmits)
	}
	var sum uint32
	for _, n := range r.seen {
		sum += n
	}
	return sum
}
