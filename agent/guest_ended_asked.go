package agent

import "sync"

// endedAsked are the guests that have ended here of which a source is being asked, by name and migration: by one alone,
// however often their end is told.
type endedAsked struct {
	mu sync.Mutex
	of map[[2]string]bool
}

// begin says whether nobody asks of that yet: the caller does from now on.
func (e *endedAsked) begin(guest, migration string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := [2]string{guest, migration}
	if e.of[key] {
		return false
	}
	if e.of == nil {
		e.of = map[[2]string]bool{}
	}
	e.of[key] = true
	return true
}

// asksOfEnded says whether who asks is to ask on; else it asks no more. What is owed anew after that another asks.
func (a *Agent) asksOfEnded(guest, migration string) bool {
	a.endedAsked.mu.Lock()
	defer a.endedAsked.mu.Unlock()
	if a.ctx.Err() == nil && a.guests.IsUnheardEnded(guest, migration) {
		return true
	}
	delete(a.endedAsked.of, [2]string{guest, migration})
	return false
}
