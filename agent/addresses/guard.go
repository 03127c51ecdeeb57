package addresses

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"godwit/internal/clock"
	"godwit/netstate"
)

// Guard watches next addresses that the guest does not have yet.
type Guard struct {
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	taken  map[netip.Addr]string // by whom
}

// Watch asks for addrs by probe until Stop.
func Watch(ctx context.Context, addrs []netip.Addr, every time.Duration, probe func(context.Context, netip.Addr) (by string, used bool)) *Guard {
	ctx, cancel := context.WithCancel(ctx)
	g := &Guard{cancel: cancel, done: make(chan struct{}), taken: map[netip.Addr]string{}}
	go func() {
		defer close(g.done)
		for clock.Sleep(ctx, every) {
			for _, addr := range addrs {
				by, used := probe(ctx, addr)
				g.mu.Lock()
				if used {
					g.taken[addr] = by
				} else if ctx.Err() == nil {
					delete(g.taken, addr) // it is free again
				}
				g.mu.Unlock()
			}
		}
	}()
	return g
}

// Free says whether nobody has taken an address, as far as was seen by now; there is no guard: it is not known.
func (g *Guard) Free() bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.taken) == 0
}

// Stop ends the guard, within some 10 ms, and returns who has which address.
func (g *Guard) Stop() map[netip.Addr]string {
	if g == nil {
		return nil
	}
	g.cancel()
	<-g.done
	return g.taken
}

// Used asks the LAN who has addr. What cannot be found out counts as free: the
// check has seen that it was.
func (b *Book) Used(ctx context.Context, addr netip.Addr) (by string, used bool) {
	used, mac, err := netstate.Probe(ctx, b.config.Network.Bridge, addr)
	return mac.String(), used && err == nil
}
