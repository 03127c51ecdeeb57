package uplinks

import (
	"slices"
	"sync"
)

// WireShares part what the meters count between migrations that run at the same time to
// the same host: a meter knows addresses, not whose connection it is. Each gets what its
// own bytes are of all of theirs.
type WireShares struct {
	mu     sync.Mutex
	active map[string][]*WireShare // by the other host
	turns  int                     // times that somebody began or ceased to send
}

// WireShare is one migration's. A nil one has all.
type WireShare struct {
	of      *WireShares
	host    string
	sources []*func() int64 // of its own bytes, each growing from 0
	ended   int64           // of sources that were let go
	settled int64           // its own bytes until it was settled last
	others  map[*WireShare]int64
	turn    int // of the others, when it was
}

// Join begins the share of one migration to that host, from now on.
func (w *WireShares) Join(host string) *WireShare {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns++
	s := &WireShare{of: w, host: host, others: map[*WireShare]int64{}, turn: w.turns}
	for _, o := range w.active[host] {
		s.others[o], o.others[s] = o.sent(), 0
	}
	if w.active == nil {
		w.active = map[string][]*WireShare{}
	}
	w.active[host] = append(w.active[host], s)
	return s
}

// Leave ends a share; those that knew it go on counting with what it had sent. It may be
// called again.
func (s *WireShare) Leave() {
	if s == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.turns++
	s.ended, s.sources, s.others = s.sent(), nil, nil
	left := slices.DeleteFunc(s.of.active[s.host], func(o *WireShare) bool { return o == s })
	if s.of.active[s.host] = left; len(left) == 0 {
		delete(s.of.active, s.host)
	}
}

// Follow adds a count of its own bytes, until that has ended: then what it was stays.
func (s *WireShare) Follow(sent func() int64) (leave func()) {
	if s == nil {
		return func() {}
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.turns++
	s.sources = append(s.sources, &sent)
	return func() {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		if i := slices.Index(s.sources, &sent); i >= 0 {
			s.of.turns++
			s.ended += sent()
			s.sources = slices.Delete(s.sources, i, i+1)
		}
	}
}

// sent is called with the mutex held.
func (s *WireShare) sent() int64 {
	sum := s.ended
	for _, source := range s.sources {
		sum += (*source)()
	}
	return sum
}

// part is its share of what was counted since it was settled, or began, 0 to 1. It is called with the mutex held.
func (s *WireShare) part() float64 {
	own := s.sent() - s.settled
	all := own
	for o, before := range s.others {
		all += o.sent() - before
	}
	if all <= 0 {
		return 1 / float64(1+len(s.others))
	}
	return float64(own) / float64(all)
}

// Settle is its share of what was counted since it was settled, or began, 0 to 1. Where nobody else is there, or somebody
// has begun or ceased to send, what comes from now on is parted anew, and anew says so: the others' bytes of then are not
// on the paths of what was sent before.
func (s *WireShare) Settle() (part float64, anew bool) {
	if s == nil {
		return 1, false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	part = s.part()
	active := s.of.active[s.host]
	if s.turn == s.of.turns && len(active) > 1 {
		return part, false
	}
	s.turn, s.settled = s.of.turns, s.sent()
	for o := range s.others {
		if slices.Contains(active, o) {
			s.others[o] = o.sent()
		} else {
			delete(s.others, o)
		}
	}
	return part, true
}
