package agent

import (
	"errors"

	"godwit/netstate"
)

// putBack makes the kernel equal again to what guests' detours ask for, where somebody changed
// the host's nftables and took some of it away: a firewall that loads its rules anew, or
// flushes everybody's. It says whose. Where nothing was changed it costs one question, and
// elsewhere a flip waits for one guest's look at the most.
func (s *detours) putBack() ([]string, error) {
	now, err := netstate.Generation()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if now == s.rules {
		s.mu.Unlock()
		return nil, nil
	}
	s.rules = now // what is changed from here on, also by us, is seen the next time
	guests := map[string]bool{}
	for _, d := range s.byID {
		guests[d.Guest] = true
	}
	s.mu.Unlock()
	var hurt []string
	for guest := range guests {
		put, putErr := s.putBackOf(guest)
		if err = errors.Join(err, putErr); put {
			hurt = append(hurt, guest)
		}
	}
	return hurt, err
}

// putBackOf says whether something of the guest's was missing.
func (s *detours) putBackOf(guest string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.want(guest)
	if want.Empty() || s.stale[guest] { // catchUp does those
		return false, nil
	}
	if ok, err := netstate.Stands(want); ok || err != nil {
		return false, err
	}
	return true, netstate.Set(want)
}
