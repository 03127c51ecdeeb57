package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// past is what the history has of a migration that ended under an earlier agent.
type past struct {
	report record.Report
	kept   bool
	err    error
}

// pastOf reads it. Tests have a slower disk.
var pastOf = func(s *record.Store, id string) (p past) {
	p.report, p.kept, p.err = s.History(id)
	return p
}

// hasEnded is why a migration does not begin here: it was here, and has ended. Under mu; what has ended since this agent
// started is in memory, whenever the history was read.
func (a *Agent) hasEnded(plan migration.Plan, before past) error {
	rec, earlier := a.records.Find(plan.ID), before.report
	if rec != nil {
		earlier = rec.Snapshot()
	} else if before.err != nil {
		return before.err // it may have ended here
	}
	switch {
	case (rec == nil && !before.kept) || earlier.Epoch < plan.Epoch:
	case earlier.Outcome == migration.Aborted && earlier.Problem != nil: // such as by an agent that was killed since it was asked first
		return earlier.Problem
	default:
		return &migration.Problem{Code: migration.CodeUsage, Text: "migration " + plan.ID + ": it has ended on " + a.config.Host}
	}
	return nil
}

// earlierLook is between two looks whether an earlier try is over.
const earlierLook = 10 * time.Millisecond

// awaitEarlier waits until an earlier try of a migration, which is undone, is written down too: its source begins again
// when it hears of the first, and storage may be slow.
func (a *Agent) awaitEarlier(ctx context.Context, plan migration.Plan) {
	for {
		a.mu.Lock()
		m := a.incoming[plan.ID]
		a.mu.Unlock()
		if m == nil || m.plan.Epoch >= plan.Epoch || !m.ended() || !sleep(ctx, earlierLook) {
			return
		}
	}
}

// incomingFor begins the migration at this side, or finds it if the source asks again. a.mu is not held while its
// journal is made: a release that waits for that disk makes another guest stand still.
func (a *Agent) incomingFor(p talk.Preparation) (*incoming, error) {
	m, found, err := a.admitIncoming(p)
	if err != nil {
		return nil, err
	}
	for _, next := range m.plan.Next { // it comes with them from now on. What is promised to its guest later is for its next move
		a.book.Release(m.plan.Guest, next.Prefix.Addr())
	}
	if found {
		return m, nil
	}
	if err := a.beginJournal(m); err != nil {
		a.mu.Lock()
		delete(a.incoming, p.Plan.ID)
		a.mu.Unlock()
		m.endWaits(err)
		return nil, err
	}
	m.log.OnSync(a.metrics.Synced)
	a.follow(m.rec, m.plan)
	a.records.Add(m.rec)
	a.actors.Go(func() { m.run(a.ctx, migration.Input{Kind: migration.Start, Epoch: p.Plan.Epoch}) })
	return m, nil
}

// admitIncoming makes a migration known that may begin here, and whose name, disks and addresses are its own from then
// on; or finds it.
func (a *Agent) admitIncoming(p talk.Preparation) (m *incoming, found bool, err error) {
	before := pastOf(a.records, p.Plan.ID) // not under a.mu, as its journal is made
	a.mu.Lock()
	defer a.mu.Unlock()
	if m, ok := a.incoming[p.Plan.ID]; ok {
		if m.plan.Epoch != p.Plan.Epoch {
			return nil, true, &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("migration %s: an earlier try of it is still being undone on %s", p.Plan.ID, a.config.Host)}
		}
		return m, true, nil
	}
	if err := a.hasEnded(p.Plan, before); err != nil {
		return nil, false, err
	}
	if e, over := a.abortedEarly[p.Plan.From+" "+p.Plan.ID]; over && p.Plan.Epoch <= e.epoch {
		return nil, false, &migration.Problem{Code: migration.CodeAsked, Text: fmt.Sprintf("migration %s: %s gave it up before its prepare came to %s", p.Plan.ID, p.Plan.From, a.config.Host)}
	}
	if err := a.guests.NameFree(p.Plan.Guest); err != nil { // before it has a journal: a later agent would take that guest for this one
		return nil, false, err
	}
	for _, other := range a.incoming {
		if other.plan.Guest == p.Plan.Guest {
			return nil, false, &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: migration %s brings it to %s already", p.Plan.Guest, other.plan.ID, a.config.Host)}
		}
		for _, next := range p.Plan.Next {
			if !p.Plan.KeepsAddress() && slices.ContainsFunc(other.plan.Next, func(o migration.Address) bool { return o.Prefix.Addr() == next.Prefix.Addr() }) {
				return nil, false, &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("next address %s: guest %s comes to %s with it; try again for another", next.Prefix.Addr(), other.plan.Guest, a.config.Host)}
			}
		}
	}
	m = &incoming{
		a: a, offer: talk.Offer{Plan: p.Plan, Description: p.Description, Facts: p.Facts, Touched: p.Touched, Endpoint: p.Endpoint}, plan: p.Plan,
		rec: record.New(a.config.Host, p.Plan, a.clock()), inbox: make(chan migration.Input, 4), wake: make(chan struct{}),
		work: &destinationWork{preparation: p},
	}
	if err := m.disksFree(); err != nil {
		return nil, false, err
	}
	m.order = a.admitted()
	a.incoming[p.Plan.ID] = m
	return m, false, nil
}

func (a *Agent) forgetIncoming(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.incoming, id)
}

func (a *Agent) findIncoming(r *http.Request) (*incoming, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.incoming[r.PathValue("id")]
	if !ok || peer.Caller(r) != m.plan.From {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration %s: not under way on host %s", r.PathValue("id"), a.config.Host)}
	}
	m.noteHeard()
	return m, nil
}

// findTry is findIncoming for a Try. One that an earlier try asked for, and that comes late, would lead packets to a
// guest that is not here yet, or away from one that is.
func (a *Agent) findTry(r *http.Request) (*incoming, error) {
	var ask talk.Try
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	m, err := a.findIncoming(r)
	if err == nil && ask.Epoch != 0 && ask.Epoch != m.plan.Epoch {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"migration %s: it is tried by epoch %d on host %s, and not by %d", m.plan.ID, m.plan.Epoch, a.config.Host, ask.Epoch)}
	}
	return m, err
}
