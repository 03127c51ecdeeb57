package detour

import (
	"net/netip"
	"slices"
	"time"

	"godwit/agent/config"
	"godwit/netstate"
)

// Needed is what the destination of a guest that has landed needs of this host still. It is in the journal: what
// is done by it is done again by an agent that is started again.
type Needed struct {
	Leased []netip.Addr  `json:"leased,omitempty"` // addresses that need the tunnel
	Moved  []netip.Addr  `json:"moved,omitempty"`  // of these, what their home sends there by itself
	Lease  time.Duration `json:"lease,omitempty"`  // of what was left when that was asked; 0: for good
}

// Settle ends what d leads to its guest, but for what a lease needs, and says whether that is anything. nil: an
// earlier agent has not written down what is needed, and all of it may be.
func (n *Needed) Settle(d *Detour, forGood bool) bool {
	if n == nil {
		n = &Needed{Leased: d.Addresses()}
		if !forGood {
			n.Lease = config.DefaultLease
		}
	}
	d.Leave(slices.DeleteFunc(slices.Clone(n.Leased), func(addr netip.Addr) bool { return slices.Contains(n.Moved, addr) }))
	if len(d.Addresses()) == 0 {
		return false
	}
	d.LeaseFor(n.Lease)
	return true
}

// GivenUp says whether the guest came here with addresses by d that it needs no more.
func (n *Needed) GivenUp(d *Detour) bool {
	return n != nil && slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return !v.AtHome() && !slices.Contains(n.Leased, v.Addr) })
}
