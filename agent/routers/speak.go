package routers

import (
	"slices"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/netstate"
)

// A guest that visits hears its own link's routers no more, and what they granted it runs out: the
// default route in half an hour, as a rule (RFC 4861 §6.2.1), its addresses later. So they are said to
// speak at its tap here, as long as it has an address of that link there. And it looks for its neighbours on
// this link: it is answered that they are at the bridge (netstate.Answer).

// Speakers say at guests' taps what those are to hear. It is for one goroutine.
type Speakers struct {
	Network config.Network
	May     func(tap, guest string) bool // whether the guest is to hear anything at that tap just now; asked by others, too
	Failed  func(guest string, err error)

	at map[string]advertiser // by tap
}

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

// Close ends all that is said.
func (s *Speakers) Close() {
	for _, one := range s.at {
		one.Close()
	}
}

// Keep makes those that speak the ones that are wanted, by tap. Where one cannot, Failed is told, and it is tried the
// next time.
func (s *Speakers) Keep(want map[string]detour.Advertised) {
	if s.at == nil {
		s.at = map[string]advertiser{}
	}
	for tap, one := range s.at {
		if w, wanted := want[tap]; !wanted || one.over() || !w.Equal(one.of) {
			one.Close()
			delete(s.at, tap)
		}
	}
	for tap, w := range want {
		if _, speaks := s.at[tap]; speaks || !s.May(tap, w.Guest) {
			continue
		}
		one, err := s.speakAt(tap, w)
		if err != nil {
			s.Failed(w.Guest, err)
			continue
		}
		s.at[tap] = one
	}
}

// speakAt begins to say at a tap what its guest is to hear. On error nothing is said.
func (s *Speakers) speakAt(tap string, w detour.Advertised) (advertiser, error) {
	one, may := advertiser{of: w}, func() bool { return s.May(tap, w.Guest) }
	mac, err := netstate.HardwareOf(s.Network.Bridge)
	if err != nil {
		return one, err
	}
	if len(w.Heard) > 0 {
		says, err := netstate.Advertise(tap, mac, w.Heard, may)
		if err != nil {
			return one, err
		}
		one.speakers = append(one.speakers, says)
	}
	if len(w.On) > 0 {
		says, err := netstate.Answer(tap, mac, w.On, append(slices.Clone(w.But), s.Network.Gateway4, s.Network.Gateway6), may)
		if err != nil {
			one.Close()
			return one, err
		}
		one.speakers = append(one.speakers, says)
	}
	return one, nil
}
