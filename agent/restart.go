package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"godwit/agent/care"
	"godwit/agent/described"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/vm"
)

// resumeMigration goes on with a migration that an earlier agent left. The state
// is the journal's; what a running QEMU says is asked first.
func (a *Agent) resumeMigration(ctx context.Context, id string, lost map[string]*guests.Guest) error {
	var head struct {
		Side string `json:"side"`
	}
	if err := journal.Read(a.config.StatePath("journal"), id, &head); err != nil {
		return err
	}
	switch head.Side {
	case "source":
		return a.resumeSource(id, lost)
	case "destination":
		return a.resumeDestination(ctx, id)
	}
	return fmt.Errorf("journal %s: side %q is unknown", id, head.Side)
}

// resumeSource goes back, or, when the guest had been let go, forward.
func (a *Agent) resumeSource(id string, lost map[string]*guests.Guest) error {
	var j written.Source
	log, err := journal.Open(a.config.StatePath("journal"), id, &j)
	if err != nil {
		return err
	}
	if err := j.Check(id); err != nil {
		return errors.Join(err, log.Close())
	}
	if j.State.Course != migration.Ended && a.records.HasEnded(id+".json", max(j.State.Epoch, j.Plan.Epoch)) {
		a.endJournal(log, id, func() error { return nil }) // it is in the history
		return nil
	}
	g, aside, err := a.guestLeft(j, lost[j.Plan.Guest])
	if err != nil {
		return errors.Join(err, log.Close())
	}
	m := &outgoing{
		a: a, guest: g, link: a.linkAgain(j.Plan.To), plan: j.Plan, itself: itselfBy(j.Plan), state: j.State, log: log,
		work: &sourceWork{skew: j.Skew, prepared: talk.Prepared{Coming: j.Coming, Home: j.Home}},
		rec:  record.New(a.config.Host, j.Plan, a.clock()), inbox: make(chan migration.Input, 1), kept: j.Report, found: true, aside: aside,
		process: j.QEMU, nextMode: j.Next, over: j.State.Course == migration.Ended,
	}
	m.runsThere.Store(j.RunsThere)
	m.asking.Store(j.State.Course != migration.Ended)
	m.bandwidth.Set(j.Plan.Bandwidth)
	m.work.needed.Store(j.Needed)
	m.rec.Recall(j.Report)
	m.rec.Edit(func(r *record.Report) { r.Requested, r.Paused = j.Begun, j.Paused })
	log.OnSync(a.metrics.Synced)
	m.foundAgain()
	a.mu.Lock()
	a.outgoing[id] = m
	a.records.Add(m.rec)
	a.mu.Unlock()
	if j.State.Course == migration.Ended {
		a.actors.Go(m.finish)
		return nil
	}
	restarted := m.restarted(lost[j.Plan.Guest] != nil)
	a.actors.Go(func() { m.run(a.ctx, m.ifItRuns(a.ctx, restarted)) })
	return nil
}

// linkAgain is the link to the other host of a migration that an earlier agent began. To one that the
// configuration does not name any more it has no path: nobody answers there, and what can be done
// here is done nevertheless. No guest stays paused for that, and no QEMU waits for ever.
func (a *Agent) linkAgain(host string) *peer.Link {
	link, _, err := a.link(host)
	if err != nil {
		a.log.Warn("the other host of a migration cannot be asked", "error", err)
		link = peer.NewLink(a.id, host, a.config.Port, nil)
	}
	return link
}

// restarted is a source's first input after a restart, by what is known of its QEMU; lost says
// that it is gone for sure, and was so when the agent started. A guest whose QEMU does not
// answer may live: nothing is concluded from that. Another in its place is the guest for as long as nothing was let go.
func (m *outgoing) restarted(lost bool) migration.Input {
	why := &migration.Problem{Code: migration.CodeAgent, Text: fmt.Sprintf("migration %s: the source's agent ended while it ran", m.plan.ID)}
	alive := m.guest.Alive()
	switch {
	case alive && !(m.state.Switching() && m.another()):
	case lost || m.guest.Machine() != nil: // nothing to begin again with
		m.lost = true
		why = goneProblem(m.plan.Guest, "was lost with its host or its QEMU, while no agent ran,")
		if m.state.Switching() && !m.state.Released() { // it goes on as if it had let go
			m.flippedAgain()
			if alive {
				m.standAgain()
			}
		}
	default:
		why.Code, why.Text = migration.CodeHypervisor, why.Text+", and its QEMU does not answer"
	}
	return migration.Input{Kind: migration.Restarted, Problem: why}
}

// ifItRuns says of a guest that is gone from here, and was never let go by the journal, that it runs at its
// destination: STATE was put back from a backup of before the switch. A destination that does not say so proves
// nothing.
func (m *outgoing) ifItRuns(ctx context.Context, in migration.Input) migration.Input {
	defer m.asking.Store(false)
	if !m.lost || m.state.Switching() {
		return in
	}
	if answer, err := m.askLanding(ctx); err == nil && answer.Runs() {
		m.runsThere.Store(true)
		in.Problem = &migration.Problem{Code: migration.CodeGuestGone, Text: fmt.Sprintf(
			"guest %s is gone from here, and host %s says that it went there by this migration: this host's journal is of before the switch, as from a backup; see `godwit guest ls` there", m.plan.Guest, m.plan.To)}
	}
	return in
}

// foundAgain makes true of a migration what the journal says of it: what is known of it, its
// epoch, which way the guest's packets take.
func (m *outgoing) foundAgain() {
	m.rec.Edit(func(r *record.Report) {
		if r.Old = m.plan.Held; !m.state.Heard() || len(r.Next) == 0 { // else it is what the guest got there
			r.Next = m.plan.Next
		}
	})
	if m.state.Heard() {
		rep := m.rec.Snapshot()
		m.rec.SetPlan(m.plan.Landed(rep.Network, rep.Next))
	}
	m.a.follow(m.rec, m.plan)
	m.rec.Note("the source's agent was started again")
	if m.state.Epoch == 0 { // written before states had one
		m.state.Epoch = m.plan.Epoch
	}
	if m.state.Taken { // the earlier agent may have ended before it wrote down by which right the guest is here, and whom to tell
		m.takenAgain()
		if taken := m.writeTaken(m.state); m.untaken != nil { // else resumeTaken finds it
			m.a.actors.Go(func() { m.a.tellTaken(taken) })
		}
	} else {
		m.plan.Epoch = m.state.Epoch // it may have begun again
	}
	m.rec.Edit(func(r *record.Report) { r.Epoch = m.state.Epoch })
	if m.state.Released() {
		m.flippedAgain()
	}
	told := m.state
	m.told.Store(&told)
	if m.guest.Machine() != nil {
		m.watchGuest()
	}
	if m.state.Released() && m.guest.Alive() {
		m.standAgain()
	}
}

// flippedAgain leads packets to a guest that was let go, as its flip did: that is not on the
// disk, and the host may have rebooted since.
func (m *outgoing) flippedAgain() {
	if _, ok := m.a.detours.Get(m.detourID()); !ok {
		return // settled already
	}
	err := m.a.restoreDetour(m.a.ctx, m.detourID())
	if err = errors.Join(err, m.a.detours.Flip(m.detourID(), true)); err != nil {
		m.a.log.Warn("lead packets to the guest", "migration", m.plan.ID, "error", err)
	}
}

// resumeDestination asks the QEMU that waited, or runs, what is true.
func (a *Agent) resumeDestination(ctx context.Context, id string) error {
	var j written.Destination
	log, err := journal.Open(a.config.StatePath("journal"), id, &j)
	if err != nil {
		return err
	}
	if err := j.Check(id); err != nil {
		return errors.Join(err, log.Close())
	}
	if a.records.HasEnded(id+"-destination.json", max(j.State.Epoch, j.Offer.Plan.Epoch)) {
		a.endJournal(log, id, func() error { return nil }) // it is in the history
		return nil
	}
	if err := a.guests.Readable(j.Offer.Plan.Guest); err != nil {
		return errors.Join(err, log.Close())
	}
	m := a.incomingAgain(j, log)
	if j.Held.Dir == "" { // written before receive began: it may have come far since
		j.Held = m.expected()
		m.dir = j.Held.Dir
	}
	if _, missing, err := inletOf(ctx, m.dir); missing > 0 || err != nil && !m.ended() { // where that is not known it may starve
		a.resumeStarving(m, j.Held, missing)
		return nil
	}
	if err := a.isSilent(m.plan.Guest); err != nil && !m.ended() {
		return errors.Join(err, log.Close())
	}
	g, err := a.guests.Find(j.Offer.Plan.Guest) // it ran here already, or else it waits
	if err != nil {
		machine, err := described.Attach(ctx, j.Held)
		if err != nil && !goneForSure(err) { // it may live: neither started nor refused by guess
			return errors.Join(&notYet{j.Held}, log.Close())
		}
		g = guests.New(j.Held, nil)
		if err == nil {
			g.RunsIn(machine)
		}
		a.guests.ExpectAgain(g)
		g.FindTaps(a.log)
	}
	m.foundGuest(g)
	a.know(m)
	a.actors.Go(func() { m.runAgain(a.ctx) })
	return nil
}

// incomingAgain is a migration as an earlier agent has written it down.
func (a *Agent) incomingAgain(j written.Destination, log *journal.File) *incoming {
	m := &incoming{
		a: a, offer: j.Offer, plan: j.Offer.Plan, log: log, state: j.State, wake: make(chan struct{}),
		rec: record.New(a.config.Host, j.Offer.Plan, a.clock()), inbox: make(chan migration.Input, 4), dir: j.Held.Dir,
		work: &destinationWork{preparation: j.Preparation},
	}
	m.ran.Store(j.Ran)
	m.rec.Recall(j.Report)
	m.foundTried(j.Handover)
	if m.state.Epoch == 0 { // written before states had one
		m.state.Epoch = j.Offer.Plan.Epoch
	}
	return m
}

// foundGuest is setGuest of one that an earlier agent received, with what came of its handover.
func (m *incoming) foundGuest(g *guests.Guest) {
	m.setGuest(g)
	if g.Machine() != nil {
		m.show(g)
	}
	m.takeGuest()
	if m.snapshot().Landing == migration.Leaving {
		m.recall()
		m.work.named = m.a.namesAgain(m.work.guest)
	}
}

// know makes a migration that an earlier agent began known to who asks.
func (a *Agent) know(m *incoming) {
	m.log.OnSync(a.metrics.Synced)
	a.follow(m.rec, m.plan)
	m.rec.Note("the destination's agent was started again")
	a.mu.Lock()
	m.order = a.admitted()
	a.incoming[m.plan.ID] = m
	a.records.Add(m.rec)
	a.mu.Unlock()
}

// resumeStarving goes on with a guest that may run already and misses pages, so many or, 0, perhaps. Its QEMU may
// answer nothing until some of them are there, so lanes are served before it is asked.
func (a *Agent) resumeStarving(m *incoming, held care.Held, missing uint64) {
	held, kept := a.keptStarving(held)
	waiting := guests.New(held, nil)
	a.guests.ExpectAgain(waiting)
	a.know(m)
	if missing > 0 {
		m.rec.Note(fmt.Sprintf("%d pages of the guest's memory are missing here", missing))
	}
	m.noteHeard()
	m.starving.Store(true)
	a.actors.Go(func() {
		heed, unheeded := context.WithCancel(a.ctx)
		heard := m.heedStarving(heed, held)
		go m.watchSource(heed)
		g, err := a.attachLate(a.ctx, held)
		unheeded()
		m.before = <-heard
		m.starving.Store(false)
		a.guests.Settled(waiting)
		if err != nil && !goneForSure(err) {
			m.log.Close() //nolint:errcheck // the agent ends, and the next one goes on
			return
		}
		if err != nil {
			g, kept, err = waiting, false, nil
		}
		if kept {
			err = a.guests.Save(g)
		} else {
			a.guests.ExpectAgain(g)
		}
		if err != nil {
			a.log.Error("guest found again", "guest", g.Name(), "error", err)
		}
		m.foundGuest(g)
		m.runAgain(a.ctx)
	})
}

// heedStarving takes what the source says while the guest's QEMU answers nobody, until ctx ends, and hands it on. A
// QEMU whose guest was taken back, was never let go, is lost, or was given up by a person, is ended: the pages for
// which it waits do not come any more, and it may run its guest as far as it needs none.
func (m *incoming) heedStarving(ctx context.Context, held care.Held) (heard <-chan []migration.Input) {
	out := make(chan []migration.Input, 1)
	go func() {
		var all []migration.Input
		defer func() { out <- all }()
		if m.snapshot().Refused() { // by an earlier agent, which did not get that far
			m.endSilent(held)
		}
		for {
			select {
			case in := <-m.inbox:
				if !slices.ContainsFunc(all, func(o migration.Input) bool { return o.Kind == in.Kind && o.Epoch == in.Epoch }) { // the source repeats it
					all = append(all, in)
				}
				if m.endsStarving(in) {
					m.endSilent(held)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// endsStarving says whether no page comes any more after what the source says.
func (m *incoming) endsStarving(in migration.Input) bool {
	switch in.Kind {
	case migration.Lose, migration.Disown:
		return true
	case migration.Abort:
		state := m.snapshot()
		return in.Epoch > state.Epoch || in.Epoch == state.Epoch && !state.Released && !state.Running()
	}
	return false
}

// restart is the first input after a restart, by what QEMU said.
func (m *incoming) restart(status vm.Status) migration.Input {
	why := &migration.Problem{Code: migration.CodeAgent, Text: fmt.Sprintf("migration %s: the destination's agent ended before the guest was let go", m.plan.ID)}
	switch {
	case status == "":
		if m.state.Landing != migration.Receiving && !m.state.Refused() {
			why.Text = fmt.Sprintf("guest %s: its QEMU on %s is gone, and it may have run there; see `godwit recover %s` on both hosts", m.plan.Guest, m.plan.To, m.plan.ID)
			if !m.toldLost() {
				m.rec.Note(why.Text)
			}
		}
		return migration.Input{Kind: migration.Vanish, Problem: why}
	case m.state.Running(), m.state.Refused():
	case !neverRan(status):
		return migration.Input{Kind: migration.RunsAlready}
	default:
		m.watchArrival()
	}
	return migration.Input{Kind: migration.Restarted, Problem: why}
}
