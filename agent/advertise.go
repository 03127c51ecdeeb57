package agent

import (
	"slices"

	"godwit/migration"
	"godwit/netstate"
)

// A guest that visits hears its own link's routers no more, and what they granted it runs out: the
// default route in half an hour, as a rule (RFC 4861 §6.2.1), its addresses later. So they are said to
// speak at its tap here, as long as it has an address of that link there.

// advertised is what a guest hears at a tap, and whose it is.
type advertised struct {
	guest string
	heard []netstate.Advertisement
}

// advertised lists what guests are to hear, by tap. A migration under way is shorter than what
// routers grant; and in its handover a default route from the old link would come too late.
func (s *detours) advertised() map[string]advertised {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]advertised{}
	for _, d := range s.byID {
		if d.OffLink == nil || len(d.OffLink.Heard) == 0 || !d.Leased {
			continue
		}
		tap, now := d.OffLink.Tap, s.want(d.Guest)
		if slices.ContainsFunc(now.Visiting, func(v netstate.Visiting) bool { return v.Tap == tap && v.Addr.Is6() && !v.AtHome() }) {
			out[tap] = advertised{d.Guest, d.OffLink.Heard}
		}
	}
	return out
}

// An advertiser speaks at one tap.
type advertiser struct {
	*netstate.Advertiser
	of advertised
}

func (a advertiser) over() bool {
	select {
	case <-a.Done():
		return true
	default:
		return false
	}
}

// advertise makes those that speak the ones that should.
func (a *Agent) advertise(speak map[string]advertiser) {
	want := a.detours.advertised()
	for tap, one := range speak {
		if w, wanted := want[tap]; !wanted || one.over() || w.guest != one.of.guest || !slices.EqualFunc(w.heard, one.of.heard, sameAdvertisement) {
			one.Close()
			delete(speak, tap)
		}
	}
	for tap, w := range want {
		if _, speaks := speak[tap]; speaks || !a.mayAdvertise(tap, w.guest) {
			continue
		}
		mac, err := hardwareOf(a.config.Network.Bridge)
		var one *netstate.Advertiser
		if err == nil {
			one, err = netstate.Advertise(tap, mac, w.heard, func() bool { return a.mayAdvertise(tap, w.guest) })
		}
		if err != nil {
			a.log.Warn("a guest does not hear its routers", "guest", w.guest, "error", err)
			continue
		}
		speak[tap] = advertiser{one, w}
	}
}

func sameAdvertisement(a, b netstate.Advertisement) bool {
	return a.Router == b.Router && slices.Equal(a.Message, b.Message)
}

// mayAdvertise says whether the guest at a tap is to hear its routers just now. One that is about to
// be stopped takes nothing more (netstate.Away), and one that was has nobody to hear it.
func (a *Agent) mayAdvertise(tap, guest string) bool {
	g, err := a.guests.find(guest)
	if err != nil || a.detours.advertised()[tap].guest != guest {
		return false
	}
	id := g.migration()
	if id == "" {
		return true
	}
	rec, err := a.record(id)
	if err != nil {
		return false
	}
	phases := rec.snapshot().Phases
	return len(phases) == 0 || slices.Index(migration.Phases, phases[len(phases)-1].Name) < slices.Index(migration.Phases, migration.Switch)
}
