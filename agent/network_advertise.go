package agent

import (
	"slices"

	"godwit/agent/detour"
	"godwit/migration"
	"godwit/netstate"
)

// A guest that visits hears its own link's routers no more, and what they granted it runs out: the
// default route in half an hour, as a rule (RFC 4861 §6.2.1), its addresses later. So they are said to
// speak at its tap here, as long as it has an address of that link there. And it looks for its neighbours on
// this link: it is answered that they are at the bridge (netstate.Answer).

// An advertiser speaks at one tap.
type advertiser struct {
	speakers []speaker
	of       detour.Advertised
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
	want := a.detours.Advertised()
	for tap, one := range speak {
		if w, wanted := want[tap]; !wanted || one.over() || !w.Equal(one.of) {
			one.Close()
			delete(speak, tap)
		}
	}
	for tap, w := range want {
		if _, speaks := speak[tap]; speaks || !a.mayAdvertise(tap, w.Guest) {
			continue
		}
		one, err := a.speakAt(tap, w)
		if err != nil {
			a.rarely.warn(a.log, "a guest does not hear its routers and neighbours", "guest", w.Guest, "error", err)
			continue
		}
		speak[tap] = one
	}
}

// speakAt begins to say at a tap what its guest is to hear. On error nothing is said.
func (a *Agent) speakAt(tap string, w detour.Advertised) (advertiser, error) {
	one, may := advertiser{of: w}, func() bool { return a.mayAdvertise(tap, w.Guest) }
	mac, err := hardwareOf(a.config.Network.Bridge)
	if err != nil {
		return one, err
	}
	if len(w.Heard) > 0 {
		s, err := netstate.Advertise(tap, mac, w.Heard, may)
		if err != nil {
			return one, err
		}
		one.speakers = append(one.speakers, s)
	}
	if len(w.On) > 0 {
		s, err := netstate.Answer(tap, mac, w.On, append(slices.Clone(w.But), a.config.Network.Gateway4, a.config.Network.Gateway6), may)
		if err != nil {
			one.Close()
			return one, err
		}
		one.speakers = append(one.speakers, s)
	}
	return one, nil
}

// mayAdvertise says whether the guest at a tap is to hear its routers just now. One that is about to
// be stopped takes nothing more (netstate.Away), and one that was has nobody to hear it.
func (a *Agent) mayAdvertise(tap, guest string) bool {
	g, err := a.guests.find(guest)
	if err != nil || a.detours.Advertised()[tap].Guest != guest {
		return false
	}
	id := g.migration()
	if id == "" {
		return true
	}
	rec := a.records.Find(id)
	if rec == nil {
		return false
	}
	phases := rec.Snapshot().Phases
	return len(phases) == 0 || slices.Index(migration.Phases, phases[len(phases)-1].Name) < slices.Index(migration.Phases, migration.Switch)
}
