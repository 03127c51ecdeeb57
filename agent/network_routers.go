package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/migration"
	"godwit/netstate"
)

// A guest that leaves takes with it what the routers of its link advertise, so this host listens to
// them all the time: one that is asked may keep silent for 3.5 s (RFC 4861 §6.2.6), and a
// migration does not wait for that.

// routers are those of this host's guests' link, as they were last heard.
type routers struct {
	mu   sync.Mutex
	said map[netip.Addr]saidAt
}

type saidAt struct {
	netstate.Advertisement
	at time.Time
}

// mostRouters bounds those that are remembered: more are nobody's network.
const mostRouters = 16

func (r *routers) hear(ad netstate.Advertisement, at time.Time) {
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

// latest lists all, the one last heard first.
func (r *routers) latest() []saidAt {
	return slices.SortedFunc(maps.Values(r.said), func(a, b saidAt) int { return b.at.Compare(a.at) })
}

// heard is what those say that are routers at a time, the one last heard first.
func (r *routers) heard(now time.Time) []netstate.Advertisement {
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

// hearRouters listens to the routers of the guests' link until ctx ends.
func (a *Agent) hearRouters(ctx context.Context) {
	said := false
	for {
		watch, err := netstate.WatchRouters(a.config.Network.LAN, func(ad netstate.Advertisement) { a.routers.hear(ad, time.Now()) })
		if err != nil && !said {
			said = true
			a.log.Warn("what routers advertise is not known to guests that leave", "error", err)
		}
		if err == nil {
			select {
			case <-watch.Done():
			case <-ctx.Done():
			}
			watch.Close()
		}
		if !sleep(ctx, listenAgain) {
			return
		}
	}
}

// routersOf is what the routers of the link of the guest's active NIC advertise: they are here, or the
// guest brought it along. Nothing where it has no IPv6 address that is led after it.
func (m *outgoing) routersOf() []netstate.Advertisement {
	if !slices.ContainsFunc(m.plan.Held, func(h migration.Address) bool { return h.Prefix.Addr().Is6() }) {
		return nil
	}
	if current := m.plan.Held[0].Prefix.Addr(); m.a.config.Network.SubnetOf(current).Contains(current) {
		return m.a.routers.heard(time.Now())
	}
	tap := m.guest.Held.Taps[m.plan.Active]
	for _, d := range m.a.detours.List(m.plan.Guest) {
		if d.OffLink != nil && d.OffLink.Tap == tap && len(d.Visiting) > 0 {
			return d.OffLink.Heard
		}
	}
	return nil
}
