// Package routers hears what the routers of a host's LAN advertise, for guests that leave, and says to guests that
// visit what those of their own links did.
package routers

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/internal/clock"
	"godwit/netstate"
)

// A guest that leaves takes with it what the routers of its link advertise, so this host listens to
// them all the time: one that is asked may keep silent for 3.5 s (RFC 4861 §6.2.6), and a
// migration does not wait for that.

// Heard is what the routers of a host's guests' link said last. The zero value is ready, for use by many.
type Heard struct {
	mu   sync.Mutex
	said map[netip.Addr]saidAt
}

type saidAt struct {
	netstate.Advertisement
	at time.Time
}

// mostRouters bounds those that are remembered: more are nobody's network.
const mostRouters = 16

// Hear takes in what one says.
func (r *Heard) Hear(ad netstate.Advertisement, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said == nil {
		r.said = map[netip.Addr]saidAt{}
	}
	if _, known := r.said[ad.Router]; !known && len(r.said) >= mostRouters {
		delete(r.said, r.latest()[mostRouters-1].Router)
	}
	r.said[ad.Router] = saidAt{ad, at}
}

// latest lists all, the one last heard first; the caller holds mu.
func (r *Heard) latest() []saidAt {
	return slices.SortedFunc(maps.Values(r.said), func(a, b saidAt) int { return b.at.Compare(a.at) })
}

// At is what those say that are routers at a time, the one last heard first.
func (r *Heard) At(now time.Time) []netstate.Advertisement {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []netstate.Advertisement
	for _, s := range r.latest() {
		if now.Sub(s.at) < s.Lasts() && len(out) < netstate.MaxAdvertisements {
			out = append(out, s.Advertisement)
		}
	}
	return out
}

// listenAgain is between tries to listen to routers, where the port to them is not there.
const listenAgain = 5 * time.Second

// Listen listens to the routers of the guests' link, which is at the device lan, until ctx ends.
func (r *Heard) Listen(ctx context.Context, lan string, log *slog.Logger) {
	said := false
	for {
		watch, err := netstate.WatchRouters(lan, func(ad netstate.Advertisement) { r.Hear(ad, time.Now()) })
		if err != nil && !said {
			said = true
			log.Warn("what routers advertise is not known to guests that leave", "error", err)
		}
		if err == nil {
			select {
			case <-watch.Done():
			case <-ctx.Done():
			}
			watch.Close()
		}
		if !clock.Sleep(ctx, listenAgain) {
			return
		}
	}
}
