package agent

import (
	"errors"

	"godwit/netstate"
)

// putBack makes the kernel equal again to what guests' detours ask for, where somebody changed
// the host's nftables and took some of it away: a firewall that loads its rules anew, or
// flushes everybody's. It says whose. Where nothing was changed it costs one question.
func (s *detours) putBack() ([]string, error) {
	now, err := netstate.Generation()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now == s.rules {
		return nil, nil
	}
	s.rules = now // what is changed from here on, also by us, is seen the next time
	var guests []string
	for guest := range s.guests() {
		want := s.want(guest)
		if want.Empty() || s.stale[guest] { // catchUp does those
			continue
		}
		ok, lookErr := netstate.Stands(want)
		if lookErr == nil && !ok {
			guests = append(guests, guest)
			lookErr = netstate.Set(want)
		}
		err = errors.Join(err, lookErr)
	}
	return guests, err
}

// guests are those that have detours here.
func (s *detours) guests() map[string]bool {
	out := map[string]bool{}
	for _, d := range s.byID {
		out[d.Guest] = true
	}
	return out
}
