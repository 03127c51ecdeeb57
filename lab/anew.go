package lab

import (
	"errors"
	"maps"
)

// errAnew is why counts of a guest tell nothing of those before.
var errAnew = errors.New("the guest was booted again, or its program was started again")

// bootsAgain notes that a guest begins anew.
func (r *run) bootsAgain(guest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.programs, guest)
	r.countsAnew(guest)
}

// countsAnew notes that a guest's own counters begin anew.
func (r *run) countsAnew(guest string) {
	if r.boots == nil {
		r.boots = map[string]int{}
	}
	r.boots[guest]++
}

// beganAnew takes note of which start of a guest's program its counts are of, and is 1 where they are of another than
// those before.
func (r *run) beganAnew(guest string, start uint64) int {
	before := r.programs[guest]
	if r.programs == nil {
		r.programs = map[string]uint64{}
	}
	r.programs[guest] = start
	if before == 0 || start == before {
		return 0
	}
	r.countsAnew(guest)
	return 1
}

// bootBy is which boot of a guest the first reading after a time is of.
func (r *run) bootBy(guest string, at int64) int {
	for i := range r.balances {
		if b := &r.balances[i]; b.guest == guest && b.err == nil && b.at.UnixNano() >= at {
			return b.boot
		}
	}
	return 0
}

// since is what a reading says beyond the first one of the same counters.
func (b *balance) since(first *balance) *balance {
	more := *b
	more.byLinks -= first.byLinks
	more.missing = maps.Clone(b.missing)
	for a := range more.missing {
		more.missing[a] = more.missing[a].minus(first.missing[a])
	}
	return &more
}
