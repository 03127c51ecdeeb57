package agent

import (
	"net/netip"
	"slices"

	"godwit/migration"
	"godwit/netstate"
)

// A guest that visits hears its own link's routers no more, and what they granted it runs out: the
// default route in half an hour, as a rule (RFC 4861 §6.2.1), its addresses later. So they are said to
// speak at its tap here, as long as it has an address of that link there. And it looks for its neighbours on
// this link: it is answered that they are at the bridge (netstate.Answer).

// advertised is what a guest hears at a tap, and whose it is.
type advertised struct {
	guest string
	heard []netstate.Advertisement
	on    []netip.Prefix // by which it asks for neighbours
	but   []netip.Addr   // its routers
}

func (a advertised) equal(b advertised) bool {
	return a.guest == b.guest && slices.EqualFunc(a.heard, b.heard, sameAdvertisement) && slices.Equal(a.on, b.on) && slices.Equal(a.but, b.but)
}

// advertised lists what guests are to hear, by tap. A migration under way is shorter than what
// routers grant; and in its handover a default route from the old link would come too late.
func (s *detours) advertised() map[string]advertised {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]advertised{}
	for _, d := range s.byID {
		if d.OffLink == nil || !d.Leased {
			continue
		}
		say, visiting := advertised{guest: d.Guest}, s.want(d.Guest).Visiting
		visits := func(is func(netip.Addr) bool) bool {
			return slices.ContainsFunc(visiting, func(v netstate.Visiting) bool { return v.Tap == d.OffLink.Tap && is(v.Addr) && !v.AtHome() })
		}
		if visits(netip.Addr.Is6) {
			say.heard = d.OffLink.Heard
		}
		for _, p := range d.OffLink.On {
			if visits(func(a netip.Addr) bool { return a == p.Addr() }) {
				say.on = append(say.on, p)
			}
		}
		for _, v := range visiting {
			say.but = append(say.but, v.Gateway)
		}
		if len(say.heard)+len(say.on) > 0 {
			out[d.OffLink.Tap] = say
		}
	}
	return out
}

// An advertiser speaks at one tap.
type advertiser struct {
	speakers []speaker
	of       advertised
}

type speaker interface {
	Done() <-chan struct{}
	Close() error
}

// Close ends all that it says.
func (a advertiser) Close() {
	for _, s := range a.speakers {
		s.Close() //nolint:errcheck // a socket of our own
	}
}

func (a advertiser) over() bool {
	return slices.ContainsFunc(a.speakers, func(s speaker) bool {
		select {
		case <-s.Done():
			return true
		default:
			return false
		}
	})
}

// advertise makes those that speak the ones that should.
func (a *Agent) advertise(speak map[string]advertiser) {
	want := a.detours.advertised()
	for tap, one := range speak {
		if w, wanted := want[tap]; !wanted || one.over() || !w.equal(one.of) {
			one.Close()
			delete(speak, tap)
		}
	}
	for tap, w := range want {
		if _, speaks := speak[tap]; speaks || !a.mayAdvertise(tap, w.guest) {
			continue
		}
		one, err := a.speakAt(tap, w)
		if err != nil {
			a.log.Warn("a guest does not hear its routers and neighbours", "guest", w.guest, "error", err)
			continue
		}
		speak[tap] = one
	}
}

// speakAt begins to say at a tap what its guest is to hear. On error nothing is said.
func (a *Agent) speakAt(tap string, w advertised) (advertiser, error) {
	one, may := advertiser{of: w}, func() bool { return a.mayAdvertise(tap, w.guest) }
	mac, err := hardwareOf(a.config.Network.Bridge)
	if err != nil {
		return one, err
	}
	if len(w.heard) > 0 {
		s, err := netstate.Advertise(tap, mac, w.heard, may)
		if err != nil {
			return one, err
		}
		one.speakers = append(one.speakers, s)
	}
	if len(w.on) > 0 {
		s, err := netstate.Answer(tap, mac, w.on, append(slices.Clone(w.but), a.config.Network.Gateway4, a.config.Network.Gateway6), may)
		if err != nil {
			one.Close()
			return one, err
		}
		one.speakers = append(one.speakers, s)
	}
	return one, nil
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
