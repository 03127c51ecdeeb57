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
	if owner, taken := a.spokenFor(guest)[addr]; taken {
		return hasIt(addr, owner)
	}
	a.promised.keep(addr, guest)
	return nil
}

// promiseNext keeps a guest's next addresses for it, as promise does, until it is admitted with them: what was promised in its check may be
// over. Those that it has here already are its own, as its prepare is asked again.
func (a *Agent) promiseNext(plan migration.Plan) error {
	if plan.KeepsAddress() {
		return nil
	}
	a.promised.mu.Lock()
	defer a.promised.mu.Unlock()
	others := a.spokenFor(plan.Guest)
	for _, next := range plan.Next {
		if owner, taken := others[next.Prefix.Addr()]; taken && owner != plan.Guest {
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
				"next address %s: guest %s has it, or was promised it, on %s since the check; try again for another", next.Prefix.Addr(), owner, a.config.Host)}
		}
	}
	for _, next := range plan.Next {
		a.promised.keep(next.Prefix.Addr(), plan.Guest)
	}
	return nil
}

// keep is called with the mutex held.
func (p *promises) keep(addr netip.Addr, guest string) {
	if p.by == nil {
		p.by = map[netip.Addr]promise{}
	}
	p.by[addr] = promise{guest, time.Now().Add(promiseTime)}
}

// spokenFor are the addresses that the guest cannot get, and whose they are. The caller holds promised.mu.
func (a *Agent) spokenFor(guest string) map[netip.Addr]string {
	out, now := a.takenAddresses(), time.Now()
	for addr, p := range a.promised.by {
		if _, taken := out[addr]; !taken && p.guest != guest && now.Before(p.until) {
			out[addr] = p.guest
		}
	}
	return out
}

func hasIt(addr netip.Addr, owner string) error {
	return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("next address %s: guest %s of this host has it", addr, owner)}
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
