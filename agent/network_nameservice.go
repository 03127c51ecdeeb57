package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
)

// nameSettle is how long after it began a migration's end waits for the first try, beside what else is to be done by
// then, so that its outcome is in its report: a name server answers within two round trips.
const nameSettle = time.Second

// telling is that the name server is told of a guest.
type telling struct {
	tried <-chan struct{} // closed when that has ended, or the first try has failed
	by    time.Time       // until then a migration's end waits for it
}

// tellNames has the name server know the guest's next addresses. It never holds up a
// migration: what goes wrong becomes a note. nil: there is nothing to tell.
func (a *Agent) tellNames(plan migration.Plan, rec *record.Record) *telling {
	if a.config.DNS == nil || plan.KeepsAddress() {
		return nil
	}
	tried := make(chan struct{})
	over := sync.OnceFunc(func() { close(tried) })
	a.actors.Go(func() {
		defer over()
		still := func() bool { return a.hasAddresses(plan.Guest, plan.Next) }
		text := a.config.DNS.Tell(a.ctx, plan.Guest, seen(plan.Next), still, func(text string) {
			a.remark(plan.ID, rec, text)
			over()
		})
		if text == "" {
			return // the agent ends, and the next one goes on
		}
		a.remark(plan.ID, rec, text)
		if still() {
			a.namesOver(plan.Guest)
		}
	})
	return &telling{tried, time.Now().Add(nameSettle)}
}

// namesOver writes down that the name server is not to be told of the guest any more.
func (a *Agent) namesOver(guest string) {
	g, err := a.guests.Find(guest)
	if err != nil || !g.Held().Unnamed {
		return
	}
	g.Remember(func(h *care.Held) { h.Unnamed = false })
	if err := a.guests.SaveIfHere(g); err != nil { // it is told once more by the next agent
		a.log.Warn("keep guest", "guest", guest, "error", err)
	}
}

// namesAgain goes on telling the name server what an agent before this one did not get to. It is nil where that is nothing.
func (a *Agent) namesAgain(g *guests.Guest) *telling {
	h := g.Held()
	given, _ := h.Handed()
	if !h.Unnamed || len(given) == 0 {
		return nil
	}
	plan := migration.Plan{ID: given[0].Handover, Guest: g.Name(), Next: given}
	return a.tellNames(plan, a.records.Find(plan.ID))
}

// resumeNames does so for all guests here but those that are coming: their migrations do.
func (a *Agent) resumeNames() {
	for _, g := range a.guests.All() {
		if !a.isComing(g.Name()) {
			a.namesAgain(g)
		}
	}
}

// hasAddresses says whether the guest is here, and the addresses are its own.
func (a *Agent) hasAddresses(guest string, addrs []migration.Address) bool {
	g, err := a.guests.Find(guest)
	if err != nil || a.hasLetGo(g) {
		return false
	}
	here := migration.Bare(g.Held().Addresses)
	return !slices.ContainsFunc(migration.Bare(addrs), func(addr netip.Addr) bool { return !slices.Contains(here, addr) })
}

// hasLetGo says whether a migration of the guest has let it go: its next host tells of it by then, though what it was
// here is not cleaned up yet.
func (a *Agent) hasLetGo(g *guests.Guest) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.outgoing[g.Migration()]
	return m != nil && m.snapshot().Released()
}

// seen are the addresses as clients see them.
func seen(all []migration.Address) []netip.Addr {
	var out []netip.Addr
	for _, addr := range all {
		out = append(out, addr.Seen())
	}
	return out
}

// remark notes something of a migration that may have ended meanwhile, or under an earlier agent; rec is nil then.
func (a *Agent) remark(id string, rec *record.Record, text string) {
	if rec != nil && rec.Snapshot().Ended == 0 {
		rec.Note(text)
		return
	}
	a.records.Amend(id, func(r *record.Report) { r.Notes = append(r.Notes, text) })
}

// awaitNames waits a little for the name server, and says where it did not answer by then.
func (m *incoming) awaitNames(ctx context.Context) {
	if m.work.named == nil {
		return
	}
	late := time.NewTimer(time.Until(m.work.named.by))
	defer late.Stop()
	select {
	case <-m.work.named.tried:
		return
	case <-ctx.Done():
		return
	case <-late.C:
	}
	select {
	case <-m.work.named.tried:
	default:
		m.rec.NoteOnce(fmt.Sprintf("name service: no answer yet, %v after the handover; what comes of it is in the history of %s", nameSettle, m.plan.To))
	}
}
