package agent

import (
	"context"
	"fmt"

	"godwit/agent/journal"
	"godwit/migration"
	"godwit/vm"
)

// resumeMigration goes on with a migration that an earlier agent left. The state
// is the journal's; what a running QEMU says is asked first.
func (a *Agent) resumeMigration(ctx context.Context, id string) error {
	var head struct {
		Side string `json:"side"`
	}
	log, err := journal.Open(a.config.dir("journal"), id, &head)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	switch head.Side {
	case "source":
		return a.resumeSource(id)
	case "destination":
		return a.resumeDestination(ctx, id)
	}
	return fmt.Errorf("journal %s: side %q is unknown", id, head.Side)
}

// resumeSource goes back, or, when the guest had been let go, forward.
func (a *Agent) resumeSource(id string) error {
	var j sourceJournal
	log, err := journal.Open(a.config.dir("journal"), id, &j)
	if err != nil {
		return err
	}
	if j.Doing != j.State.Doing() {
		return fmt.Errorf("journal %s: it says %q where this version does %q; finish it with the version of godwit that began it", id, j.Doing, j.State.Doing())
	}
	g, err := a.guests.find(j.Plan.Guest)
	if err != nil {
		g = &Guest{Held: Held{Description: Description{Name: j.Plan.Guest}}} // its QEMU is gone
	}
	if err := g.take(id); err != nil {
		return err
	}
	link, _, err := a.link(j.Plan.To)
	if err != nil {
		return err
	}
	m := &outgoing{
		a: a, guest: g, link: link, plan: j.Plan, state: j.State, log: log, work: &sourceWork{},
		rec: newRecord(a.config.Host, j.Plan, a.clock()), inbox: make(chan migration.Input, 1),
	}
	m.rec.edit(func(r *Report) {
		r.Requested, r.Old, r.Next = j.Begun, j.Plan.Held, j.Plan.Next
		r.WireBytes = nil // what went before is not known
	})
	a.follow(m.rec)
	m.rec.note("the source's agent was started again")
	m.released.Store(j.State.Released())
	m.over.Store(j.State.Course != migration.Forward)
	if g.Machine != nil {
		m.watchGuest()
	}
	a.mu.Lock()
	a.outgoing[id], a.records[id] = m, m.rec
	a.mu.Unlock()
	if j.State.Course == migration.Ended {
		a.actors.Go(m.finish)
		return nil
	}
	restarted := migration.Input{Kind: migration.Restarted, Problem: &migration.Problem{
		Code: migration.CodeInternal, Text: fmt.Sprintf("migration %s: the source's agent ended while it ran", id)}}
	a.actors.Go(func() { m.run(a.ctx, restarted) })
	return nil
}

// resumeDestination asks the QEMU that waited, or runs, what is true.
func (a *Agent) resumeDestination(ctx context.Context, id string) error {
	var j destinationJournal
	log, err := journal.Open(a.config.dir("journal"), id, &j)
	if err != nil {
		return err
	}
	g, err := a.guests.find(j.Offer.Plan.Guest) // it ran here already, or else it waits
	if err != nil {
		g = &Guest{Held: j.Held}
		a.guests.expectAgain(g)
		if machine, err := attachMachine(ctx, j.Held); err == nil {
			g.Machine = machine
		}
		a.findTaps(g)
	}
	status := vm.Status("")
	if g.Machine != nil {
		if status, err = g.Machine.Status(ctx); err != nil {
			return fmt.Errorf("resume %s: ask qemu: %w", id, err)
		}
	}
	m := &incoming{
		a: a, offer: j.Offer, plan: j.Offer.Plan, log: log, state: j.State, wake: make(chan struct{}),
		rec: newRecord(a.config.Host, j.Offer.Plan, a.clock()), inbox: make(chan migration.Input, 4),
		work: &destinationWork{preparation: j.Preparation, guest: g},
	}
	a.follow(m.rec)
	m.rec.note("the destination's agent was started again")
	first := m.restart(status)
	a.mu.Lock()
	a.incoming[id], a.records[id] = m, m.rec
	a.mu.Unlock()
	a.actors.Go(func() { m.run(a.ctx, first) })
	return nil
}

// restart is the first input after a restart, by what QEMU said; its zero value
// is none. Where QEMU is gone it may have run: nothing is started and nothing
// refused, unless the source, which then never let go, asks to undo.
func (m *incoming) restart(status vm.Status) migration.Input {
	why := &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf("migration %s: the destination's agent ended before the guest was let go", m.plan.ID)}
	switch {
	case m.state.Running(), m.state.Refused():
		return migration.Input{Kind: migration.Restarted, Problem: why}
	case status == vm.Running:
		return migration.Input{Kind: migration.RunsAlready}
	case status == "" && m.state.Landing != migration.Receiving:
		m.unsure = true
		m.rec.note("the QEMU that waited is gone, and whether it ran is not known: decide with the source's operator, or abort there")
		return migration.Input{}
	case status != "":
		m.state.Loaded = false
		m.await1()
	}
	return migration.Input{Kind: migration.Restarted, Problem: why}
}
