package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/otherway"
	"godwit/agent/talk"
	"godwit/migration"
)

// A host that sends a guest's addresses here may forget that: its STATE was put back as it was before the guest left,
// or moved away. It then ends its end of the tunnel, which no detour has any more, and does not know that there is
// anything to say. It makes none again by the word of this host (detour_ledon.go). So the guest's host asks now and
// then, and says what it hears: a person has the guest come home.

// unledLook is between looks whether addresses are led here.
const unledLook = 30 * time.Second

// unled is what the other ends of detours said last, where they do not lead here what came by them. The zero value is ready.
type unled struct {
	mu  sync.Mutex
	why map[string]error // by detour
}

func (u *unled) of(id string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.why[id]
}

// keep forgets those of detours that are none of all.
func (u *unled) keep(all []detour.Detour) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.why, func(id string, _ error) bool {
		return !slices.ContainsFunc(all, func(d detour.Detour) bool { return d.ID == id })
	})
}

func (u *unled) set(id string, why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if delete(u.why, id); why == nil {
		return
	}
	if u.why == nil {
		u.why = map[string]error{}
	}
	u.why[id] = why
}

// lookAtLed asks the other ends of leased detours of guests here, each beside everything else.
func (a *Agent) lookAtLed(ctx context.Context, l *looks) {
	all := a.detours.List("")
	a.unled.keep(all)
	for _, d := range all {
		if a.isLedTo(d) != nil && !a.moves(d) {
			l.begin("/led/"+d.ID, func() {
				if sleep(ctx, unledLook) {
					a.askWhetherLed(ctx, d.ID, otherway.Look)
				}
			})
		}
	}
}

// moves says whether a migration has to do with d's guest now.
func (a *Agent) moves(d detour.Detour) bool {
	g, err := a.guests.Find(d.Guest)
	return err == nil && g.Migration() != "" || a.underWay(migrationOf(d.ID))
}

// isLedTo are the addresses that d's other end is to lead here.
func (a *Agent) isLedTo(d detour.Detour) []netip.Addr {
	if _, err := a.guests.Find(d.Guest); err != nil || !d.Leased {
		return nil
	}
	var out []netip.Addr
	for _, v := range d.Visiting {
		if !v.AtHome() {
			out = append(out, v.Addr)
		}
	}
	return out
}

// askWhetherLed keeps, and says, that a detour's other end leads none of it here. It is asked twice: the guest may just
// have gone, or come. Silence says nothing, nor does a host that cannot say it.
func (a *Agent) askWhetherLed(ctx context.Context, id string, pause time.Duration) {
	for again := false; ; again = true {
		d, ok := a.detours.Get(id)
		addrs := a.isLedTo(d)
		if !ok || addrs == nil {
			a.unled.set(id, nil)
			return
		}
		if a.moves(d) {
			return
		}
		link, _, err := a.link(d.Peer)
		if err == nil {
			ask, cancel := limits.AskLed.On(ctx)
			err = limits.Says(ask, link.Call(ask, http.MethodPost, "/v1/detours/led", talk.Led{Guest: d.Guest, Addresses: addrs, To: a.config.Host, Hops: talk.MostHops}, nil))
			cancel()
		}
		var refused *migration.Problem
		switch {
		case err == nil:
			a.unled.set(id, nil)
			return
		case !errors.As(err, &refused) || refused.Code != migration.CodeAddress:
			return
		case again:
			if passes := otherway.Through(ctx, d.Tunnel); passes != otherway.Nothing && passes != otherway.Untold || ctx.Err() != nil {
				return // it has it by another name: this host's was changed
			}
			known := a.unled.of(id) != nil
			if a.unled.set(id, err); known {
				return
			}
			a.log.Warn("a guest is not reached by its addresses from elsewhere", "id", id, "guest", d.Guest, "error", a.whyUnled(d))
			return
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// whyUnled says it of a detour in the words of its other end, and what a person can do; "": what came by it is led
// here, as far as is known.
func (a *Agent) whyUnled(d detour.Detour) string {
	err := a.unled.of(d.ID)
	if err == nil {
		return ""
	}
	led := a.isLedTo(d)
	if led == nil {
		return ""
	}
	home := d.Peer
	if g, found := a.guests.Find(d.Guest); found == nil {
		for _, addr := range g.Held().Addresses {
			if slices.Contains(led, addr.Prefix.Addr()) {
				home = addr.Home
			}
		}
	}
	return fmt.Sprintf("%v; `godwit migrate %s %s --network tunnel` has them lead to it again, at home", err, d.Guest, home)
}
