package addresses

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/config"
)

// An address that a guest has left is still in the caches of name servers and in clients' lists of addresses for a
// while: who gets it next would be taken for that guest. It is given to others last, the one left longest ago before
// the rest.

// vacatedFor is how long an address is kept back, as long as a lease.
const vacatedFor = config.DefaultLease

// vacated are addresses that guests have left lately. The zero value is ready.
type vacated struct {
	mu sync.Mutex
	by map[netip.Addr]vacancy
}

type vacancy struct {
	guest string // the last that had it
	at    time.Time
}

// Leave notes that nothing leads to the guest by these addresses any more.
func (b *Book) Leave(guest string, addrs ...netip.Addr) { b.left.leave(guest, addrs...) }

// leave notes that nothing leads to the guest by these addresses any more.
func (v *vacated) leave(guest string, addrs ...netip.Addr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by == nil {
		v.by = map[netip.Addr]vacancy{}
	}
	now := time.Now()
	for addr, left := range v.by {
		if now.Sub(left.at) > vacatedFor {
			delete(v.by, addr)
		}
	}
	for _, addr := range addrs {
		v.by[addr] = vacancy{guest, now}
	}
}

// last has the addresses that others than the guest left lately at the end, the oldest first.
func (v *vacated) last(guest string, addrs []netip.Addr) []netip.Addr {
	v.mu.Lock()
	defer v.mu.Unlock()
	left := func(addr netip.Addr) time.Time {
		if l, ok := v.by[addr]; ok && l.guest != guest && time.Since(l.at) < vacatedFor {
			return l.at
		}
		return time.Time{}
	}
	out := slices.Clone(addrs)
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return left(a).Compare(left(b)) })
	return out
}
