// Package addresses knows which addresses of its host's site a guest may be given: no guest has one of those, was
// promised it, or comes with it, it is none that no guest may have, such as the router's, and nobody answers for it on
// the LAN. What another guest has left lately is given last.
//
// Which addresses the guests here have is not known here but asked of the agent (New). That happens with a lock of the
// Book held: who holds a lock that the agent takes to answer asks a Book for nothing but Leave.
//
// A Book lives with its agent. One that is started anew has promised nothing, and keeps nothing back.
package addresses

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/migration"
)

// promiseTime is for how long an address is kept for a guest that was promised it and has
// not come: from the check to the prepare, with the hooks between them.
const promiseTime = time.Minute

// Book is what a host knows of addresses that guests may be given, for use by many.
type Book struct {
	config *config.Config
	taken  func() map[netip.Addr]string
	left   vacated

	mu       sync.Mutex
	promised map[netip.Addr]promise // to guests that will have them: nobody answers for those yet, so another check would find them free
}

type promise struct {
	guest string
	until time.Time
}

// New makes the book of a host. taken says which addresses guests there have, or come with, and whose each is; it is
// called with the book's lock held.
func New(c *config.Config, taken func() map[netip.Addr]string) *Book {
	return &Book{config: c, taken: taken}
}

// Promise keeps addr for the guest, or says who has it. The guest itself may ask again.
func (b *Book) Promise(addr netip.Addr, guest string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if owner, taken := b.spokenFor(guest)[addr]; taken {
		return hasIt(addr, owner)
	}
	b.keep(addr, guest)
	return nil
}

// PromiseNext keeps a guest's next addresses for it, as Promise does, until it is admitted with them: what was promised
// in its check may be over. Those that it has here already are its own, as its prepare is asked again.
func (b *Book) PromiseNext(plan migration.Plan) error {
	if plan.KeepsAddress() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	others := b.spokenFor(plan.Guest)
	for _, next := range plan.Next {
		if owner, taken := others[next.Prefix.Addr()]; taken && owner != plan.Guest {
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
				"next address %s: guest %s has it, or was promised it, on %s since the check; try again for another", next.Prefix.Addr(), owner, b.config.Host)}
		}
	}
	for _, next := range plan.Next {
		b.keep(next.Prefix.Addr(), plan.Guest)
	}
	return nil
}

// Claim has claim look at the addresses that the guest cannot get, and whose they are, and give it some: nobody is
// promised one meanwhile. Of two guests that come with the same at once one gets it.
func (b *Book) Claim(guest string, claim func(others map[netip.Addr]string) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return claim(b.spokenFor(guest))
}

// keep is called with mu held.
func (b *Book) keep(addr netip.Addr, guest string) {
	if b.promised == nil {
		b.promised = map[netip.Addr]promise{}
	}
	b.promised[addr] = promise{guest, time.Now().Add(promiseTime)}
}

// spokenFor are the addresses that the guest cannot get, and whose they are. The caller holds mu.
func (b *Book) spokenFor(guest string) map[netip.Addr]string {
	out, now := b.taken(), time.Now()
	for addr, p := range b.promised {
		if _, taken := out[addr]; !taken && p.guest != guest && now.Before(p.until) {
			out[addr] = p.guest
		}
	}
	return out
}

func hasIt(addr netip.Addr, owner string) error {
	return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("next address %s: guest %s of this host has it", addr, owner)}
}

// Release gives up what was promised to the guest: all of it, or addr alone.
func (b *Book) Release(guest string, addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for kept, to := range b.promised {
		if to.guest == guest && (!addr.IsValid() || kept == addr) || time.Now().After(to.until) {
			delete(b.promised, kept)
		}
	}
}
