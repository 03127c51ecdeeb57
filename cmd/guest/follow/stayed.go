package follow

import (
	"slices"
	"sync"
	"time"

	"godwit/netstate/mptcp"
)

// Stayed knows which connections did not come when they were waited for last, by token. Its zero value is ready.
type Stayed struct {
	mu     sync.Mutex
	tokens map[uint32]bool
}

// toldFor is how long those that did not come the last time are waited for when they have been told again: as long as
// others, whose peers answer the announcement and accept no address, would hold up every move by the whole limit.
const toldFor = time.Second

func (s *Stayed) last() map[uint32]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

// keep takes note of those that are behind and whose peers heard of the next address. Who was out of reach may come the
// next time.
func (s *Stayed) keep(w *watch) {
	tokens := make(map[uint32]bool)
	for token, c := range w.behind {
		if c.AddAddrSignalled > 0 && !w.apart(c) && w.heard[token] {
			tokens[token] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = tokens
}

// answers says whether the peer of c answered on an old address since the wait began.
func (w *watch) answers(c mptcp.Connection) bool {
	since := time.Since(w.start)
	return slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool {
		return s.State == mptcp.StateEstablished && slices.Contains(w.params.Old, s.Local.Addr()) && s.Unanswered == 0 && s.Silent < since
	})
}
