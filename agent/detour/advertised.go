package detour

import (
	"net/netip"
	"slices"

	"godwit/netstate"
)

// Advertised is what a guest hears at a tap, and whose it is.
type Advertised struct {
	Guest string
	Heard []netstate.Advertisement // of its routers
	On    []netip.Prefix           // by which it asks for neighbours
	But   []netip.Addr             // its routers
}

// Equal says whether the same is to be heard, by the same guest.
func (a Advertised) Equal(b Advertised) bool {
	return a.Guest == b.Guest && slices.EqualFunc(a.Heard, b.Heard, sameAdvertisement) && slices.Equal(a.On, b.On) && slices.Equal(a.But, b.But)
}

// Advertised lists what guests are to hear, by tap. A migration under way is shorter than what
// routers grant; and in its handover a default route from the old link would come too late.
func (s *Store) Advertised() map[string]Advertised {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Advertised{}
	for _, d := range s.byID {
		if d.OffLink == nil || !d.Leased {
			continue
		}
		say, visiting := Advertised{Guest: d.Guest}, s.want(d.Guest).Visiting
		visits := func(is func(netip.Addr) bool) bool {
			return slices.ContainsFunc(visiting, func(v netstate.Visiting) bool { return v.Tap == d.OffLink.Tap && is(v.Addr) && !v.AtHome() })
		}
		if visits(netip.Addr.Is6) {
			say.Heard = d.OffLink.Heard
		}
		for _, p := range d.OffLink.On {
			if visits(func(a netip.Addr) bool { return a == p.Addr() }) {
				say.On = append(say.On, p)
			}
		}
		for _, v := range visiting {
			say.But = append(say.But, v.Gateway)
		}
		if len(say.Heard)+len(say.On) > 0 {
			out[d.OffLink.Tap] = say
		}
	}
	return out
}

func sameAdvertisement(a, b netstate.Advertisement) bool {
	return a.Router == b.Router && slices.Equal(a.Message, b.Message)
}
