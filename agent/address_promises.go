package agent

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"godwit/migration"
)

// promiseTime is for how long an address is kept for a guest that was promised it and has
// not come: from the check to the prepare, with the hooks between them.
const promiseTime = time.Minute

// promises are addresses that guests will have: nobody answers for them yet, so another
// check would find them free.
type promises struct {
	mu sync.Mutex
	by map[netip.Addr]promise
}

type promise struct {
	guest string
	until time.Time
}

// promise keeps addr for the guest, or says who has it. The guest itself may ask again.
func (a *Agent) promise(addr netip.Addr, guest string) error {
	a.promised.mu.Lock()
	defer a.promised.mu.Unlock()
	now := time.Now()
	owner, taken := a.takenAddresses()[addr]
	if p, ok := a.promised.by[addr]; ok && !taken && p.guest != guest && now.Before(p.until) {
		owner, taken = p.guest, true
	}
	if taken {
		return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
			"next address %s: guest %s of this host has it", addr, owner)}
	}
	if a.promised.by == nil {
		a.promised.by = map[netip.Addr]promise{}
	}
	a.promised.by[addr] = promise{guest, now.Add(promiseTime)}
	return nil
}

// release gives up what was promised to the guest: all of it, or addr alone.
func (p *promises) release(guest string, addr netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kept, to := range p.by {
		if to.guest == guest && (!addr.IsValid() || kept == addr) || time.Now().After(to.until) {
			delete(p.by, kept)
		}
	}
}
