package evacuate

import (
	"context"
	"slices"

	"godwit/migration"
)

// This file asks again for guests that there was no room for. Guests that come at the same time take more of a host
// than when they are there, as it keeps copies of their memory meanwhile.

// noteFull keeps whether a guest has no outcome but that a host had no room for it. A disk of the source that got full
// counts, too: what others kept there goes with them.
func (e *evacuation) noteFull(name string, outcome migration.Outcome, why *migration.Problem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	full := why != nil && why.Code == migration.CodeCapacity
	e.full[name] = full || e.full[name] && outcome == migration.Refused // another host had none
}

// askAgain has the next round move those guests of this one, where others have moved.
func (e *evacuation) askAgain(ctx context.Context, moves []Move) {
	if ctx.Err() != nil || !slices.ContainsFunc(moves, func(m Move) bool { return e.of(m.Guest).Moved() }) {
		return
	}
	for _, m := range moves {
		if g := e.of(m.Guest); e.full[m.Guest] && (g.Outcome == migration.Refused || g.Outcome == migration.Aborted) {
			e.set(m.Guest, func(x *Guest) { *x = Guest{Guest: m.Guest} })
		}
	}
}
