package detour

import (
	"errors"
	"net/netip"
	"slices"

	"godwit/netstate"
)

// PutBack makes the kernel equal again to what guests' detours ask for, where somebody took some
// of it away: a firewall that loads its rules anew, or flushes everybody's; what configures the
// host's network, or its sysctls; and where the host has become a guest's router itself, or is it no more. It says
// whose. A flip waits for one guest's look at the most. What fails CatchUp repeats.
func (s *Store) PutBack() ([]string, error) {
	now, err := netstate.Generation()
	if err != nil {
		return nil, err
	}
	own, err := hostHas(s.network.Bridge)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.learn(own)
	reloaded := now != s.rules
	s.rules = now // what is changed from here on, also by us, is seen the next time
	wants := s.wants()
	s.mu.Unlock()
	if len(wants) == 0 {
		return nil, nil
	}
	var guests []string
	if reloaded {
		for _, want := range wants {
			guests = append(guests, want.Guest)
		}
	} else if guests, err = netstate.Lacking(wants); err != nil {
		return nil, err
	}
	var hurt []string
	for _, guest := range guests {
		put, putErr := s.putBackOf(guest)
		if err = errors.Join(err, putErr); put {
			hurt = append(hurt, guest)
		}
	}
	return hurt, err
}

// hostHas asks for the addresses by which the host may be a guest's router itself. That is for before Store.mu is held:
// a host of many links has many.
var hostHas = netstate.Own

// learn has guests be led by the addresses that the host has. Where they are others than before (VRRP's come and go),
// the next look of PutBack is at all guests. mu is held.
func (s *Store) learn(own []netip.Addr) {
	if !slices.Equal(own, s.own) {
		s.own, s.rules = own, 0
	}
}

// wants are what the detours of all guests ask for.
func (s *Store) wants() (all []netstate.State) {
	for guest := range s.guests() {
		if want := s.want(guest); !want.Empty() {
			all = append(all, want)
		}
	}
	return all
}

// DropStrays removes what carries our marks in the kernel and is of no guest, and says what that was. An agent of an older release, to which the
// host was rolled back, leaves what it does not know of its guests, such as a rule that has the host ask its neighbours in the name of
// one: theirs would lead to this host when that one is at home again. It is for the start: later nothing strays.
func (s *Store) DropStrays() (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return netstate.RemoveStrays(s.wants())
}

// guests are those that have detours.
func (s *Store) guests() map[string]bool {
	all := map[string]bool{}
	for _, d := range s.byID {
		all[d.Guest] = true
	}
	return all
}

// putBackOf says whether something of the guest's was missing.
func (s *Store) putBackOf(guest string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.want(guest)
	if want.Empty() || s.stale[guest] != 0 { // CatchUp does those
		return false, nil
	}
	ok, err := netstate.Stands(want)
	hurt := err == nil && !ok
	if hurt {
		err = s.apply(guest)
	}
	if err != nil { // rules are looked at once after each change of them
		s.owe(guest)
	}
	return hurt, err
}
