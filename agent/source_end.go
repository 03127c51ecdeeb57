package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/line"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm/guest"
)

// tickFollowed is the interval of the guest's own counter until ticksFollowed were heard, and tickKept
// from then on. Each tick is work for the guest, and the one that is due when it has just arrived keeps
// its clients waiting; for how long it stood still is known by its clock, and not by which tick was the last.
const (
	tickFollowed  = 50 * time.Millisecond
	ticksFollowed = 4
	tickKept      = 400 * time.Millisecond
)

// followTicks starts the guest's counter and keeps the last tick heard. It returns when it
// has heard the first: a guest that is stopped at once must have been heard as well.
func (m *outgoing) followTicks(ctx context.Context) error {
	c := m.guest.Channel()
	if c == nil {
		return line.ErrNone
	}
	askCtx, cancel := limits.FollowTicks.On(ctx)
	defer cancel()
	if err := limits.Says(askCtx, c.Ticks(askCtx, tickFollowed)); err != nil {
		return err
	}
	var last atomic.Pointer[record.Tick]
	done, heard := make(chan struct{}), make(chan struct{})
	following, leave := context.WithCancel(m.a.ctx)
	var slowing sync.WaitGroup
	slower := func() {
		ctx, cancel := limits.EndTicks.On(following)
		defer cancel()
		_ = c.Ticks(ctx, tickKept) // more of them cost time, and no more
	}
	go func() {
		defer close(done)
		hearTicks(m.rec, c, &last, following.Done(), sync.OnceFunc(func() { close(heard) }), func() { slowing.Go(slower) })
	}()
	m.work.lastTick = last.Load
	m.work.endTicks = func() *record.Tick {
		leave()
		<-done
		slowing.Wait() // it may have them go on, when somebody has them end
		return last.Load()
	}
	select {
	case <-heard:
		return nil
	case <-askCtx.Done():
		return limits.Says(askCtx, fmt.Errorf("no tick: %w", askCtx.Err()))
	}
}

// hearTicks keeps the last tick until stop is closed, or there are no more events. It calls first when it has heard the
// first one, or there will be none, and followed when it has heard ticksFollowed.
func hearTicks(rec *record.Record, c guest.Channel, last *atomic.Pointer[record.Tick], stop <-chan struct{}, first, followed func()) {
	for n := 0; ; {
		select {
		case e, ok := <-c.Events():
			if !ok {
				first()
				return
			}
			if e.Name != guest.EventTick {
				continue
			}
			last.Store(record.Truer(last.Load(), &record.Tick{N: e.N, At: rec.Stamp(e.At), Mono: e.MonoNS}, true))
			first()
			if n++; n == ticksFollowed {
				followed()
			}
		case <-stop:
			return
		}
	}
}

// awaitLanding follows the destination until the connections have been handed over
// and it needs nothing more from here.
func (m *outgoing) awaitLanding(ctx context.Context) error {
	ctx, cancel := limits.Landing.On(ctx)
	defer cancel()
	served := make(chan struct{})
	defer func() { // nobody else touches the lanes after
		cancel()
		<-served
	}()
	m.recallMemory(ctx)
	go func() {
		defer close(served)
		m.keepServing(ctx)
	}()
	heard := &m.work.landing
	for {
		asked := time.Now()
		var part record.EventsAnswer
		attempt, end := limits.LandingPoll.On(ctx)
		err := m.link.Call(attempt, http.MethodGet, fmt.Sprintf("/v1/migrations/%s/events?after=%d", m.plan.ID, heard.after), nil, &part)
		end()
		if ctx.Err() != nil {
			return limits.Says(ctx, ctx.Err())
		}
		if err != nil {
			var problem *migration.Problem
			if errors.As(err, &problem) {
				return err
			}
			sleep(ctx, landingPause) // some refusals, as of a certificate, come at once
			continue
		}
		if part.Born != heard.born { // a destination whose agent was started again counts anew
			restarted := heard.born != 0
			if heard.born = part.Born; restarted {
				heard.after = 0
				sleep(ctx, landingPause)
				continue
			}
		}
		if err := part.Sane(m.plan.To, heard.after); err != nil {
			return err
		}
		if len(part.Events) == 0 && !part.Over && time.Since(asked) < landingPause && !sleep(ctx, landingPause) {
			continue // it says so above
		}
		m.seeVanished(part.Vanished)
		heard.after += len(part.Events)
		m.hearLanding(part.Events)
		if part.Over {
			return m.askLanded(ctx)
		}
	}
}

// landingHeard is what was heard of a destination's events: who asks it anew, as it has said for long that the guest's
// last pages are on their way, or a call was lost, goes on there, and tells nobody again that the handover is done.
type landingHeard struct {
	after int   // number of the last, by the agent that runs there now
	born  int64 // see record.EventsAnswer
	kept  int   // how many of them are kept here, by however many agents of that host
}

// hearLanding tells watchers what the destination did.
func (m *outgoing) hearLanding(events []record.Event) {
	handed := int64(0)
	for _, e := range events {
		if e.Kind == "event" && e.Name != migration.HandoverDone {
			continue // of this host's own, or told already when the release was answered
		}
		e.At -= int64(m.work.skew)
		if e.Name == migration.HandoverDone { // before hooks hear of it
			m.rec.SetPlan(m.plan.Landed(e.Network, e.Next))
		}
		if m.work.landing.kept++; m.work.landing.kept <= record.EventsKept {
			m.rec.Add(e)
		}
		if e.Name == migration.HandoverDone {
			handed = e.At
		}
	}
	if handed != 0 { // by an agent that was started again it may be heard long after
		m.rec.Edit(func(r *record.Report) { r.Handed = handed })
		m.rec.EnterAt(migration.Settle, handed)
	}
}

// landingPause is between questions to a destination that answers at once, and with nothing.
const landingPause = 300 * time.Millisecond

// askLanded asks the destination what has become of the guest, and of what it needs from here.
func (m *outgoing) askLanded(ctx context.Context) error {
	var landed talk.LandedAnswer
	if err := limits.Landed.Do(ctx, func(ctx context.Context) error { return m.call(ctx, "landed", nil, &landed) }); err != nil {
		return err
	}
	landed.Sane()
	there := landed.Report
	if there.Epoch != 0 && there.Epoch != m.state.Epoch {
		return fmt.Errorf("%s answers for epoch %d of migration %s, and this is %d", m.plan.To, there.Epoch, m.plan.ID, m.state.Epoch)
	}
	if there.Outcome == migration.Aborted || there.Outcome == migration.Failed { // given up there, by a person or by this host's word
		return m.refused(there.Problem)
	}
	m.work.needed.Store(&detour.Needed{Leased: landed.Leased, Moved: landed.Moved, Lease: landed.Lease})
	m.rec.SetPlan(m.plan.Landed(there.Network, there.Next)) // also where its end of the handover was not heard
	m.rec.Edit(func(r *record.Report) { r.TakeOver(there, int64(m.work.skew)) })
	return nil
}

// cleanSource removes what the guest was here, but for a leased tunnel.
func (m *outgoing) cleanSource(ctx context.Context) error {
	m.countWire()
	m.work.leaveMemory()
	if forward := m.takeForward(); forward != nil {
		forward.Close() //nolint:errcheck // the guest is there
	}
	m.endVisit(true)
	if err := m.endDirect(ctx); err != nil {
		m.a.log.Warn("end tunnels for memory", "migration", m.plan.ID, "error", err)
	}
	if n := m.work.needed.Load(); n != nil && len(n.Moved) > 0 { // what is on its way over this host gets there
		sleep(ctx, underway)
	}
	m.a.guests.ExpectAgain(m.guest) // all this may be done again, and must not meet another of its name
	m.a.dismantle(m.guest)
	m.leaveDisks()
	if err := m.a.guests.Forget(m.guest); err != nil {
		return err
	}
	return m.settleDetours(ctx)
}

// leaveDisks removes the disks' files, which are on the destination's storage, and says which they are: one that cannot
// be removed is then known as left over.
func (m *outgoing) leaveDisks() {
	m.noteLeft()
	if err := m.a.removeDisks(m.guest.Held().Description.Disks); err != nil {
		m.rec.Note(err.Error())
	}
}

// noteLeft says which files of disks are of no use here any more. It is done before the journal says that the source is
// cleaned: an agent that is started again within that may find no guest that it could ask.
func (m *outgoing) noteLeft() {
	var left []string
	for _, d := range m.guest.Held().Description.Disks {
		if m.a.ours(d) {
			left = append(left, filepath.Base(d.Path))
		}
	}
	if len(left) > 0 {
		m.rec.Edit(func(r *record.Report) { r.Left = left })
	}
}

// underway is how long packets may be on their way through this host after their home began
// to send them to the guest directly: a path, and the queues of two busy tunnels.
const underway = time.Second

// tellInVain tells homes which send addresses here that the guest needs no more, and were not asked to send them
// elsewhere, that this ends; it comes before their detours end here. A home that sends for good is told until it
// answers, as no lease ends that.
func (m *outgoing) tellInVain(n *detour.Needed) {
	for _, d := range m.a.detours.List(m.plan.Guest) {
		e, forGood := ending{Detour: d.ID, Peer: d.Peer}, d.Leased && d.Until.IsZero()
		switch {
		case len(d.Asked) > 0 || d.ID == m.detourID() || !n.GivenUp(&d) || n.Settle(&d, m.plan.KeepsAddress()):
		case forGood:
			m.a.endLater(e)
		default:
			m.a.actors.Go(func() { m.a.askEnding(m.a.ctx, e) }) //nolint:errcheck // else its lease ends it
		}
	}
}

// settleDetours ends this host's part in leading packets to the guest, as far as
// no lease needs it. What the host asks for to which the guest has gone on by then (peerRepoint) is none of this.
func (m *outgoing) settleDetours(ctx context.Context) error {
	ends := map[string]bool{} // by id: whether the lease of an earlier move ends with it
	n := m.work.needed.Load()
	m.tellInVain(n)
	err := m.a.detours.Change(m.plan.Guest, func(all map[string]*detour.Detour) {
		for _, d := range all {
			lease := d.ID != m.detourID() && d.Leased && !d.NeedsNoTunnel()
			if d.Guest == m.plan.Guest && len(d.Asked) == 0 && !n.Settle(d, m.plan.KeepsAddress()) {
				ends[d.ID] = lease
			}
		}
	})
	for id, lease := range ends {
		d := detour.Detour{ID: id, Guest: m.plan.Guest, Leased: lease}
		m.a.willEnd(d)
		err = errors.Join(err, m.a.detours.Remove(ctx, id))
		if lease {
			m.a.tunnelEnded(d)
		}
	}
	for _, addr := range m.plan.Held {
		if n != nil && !slices.Contains(n.Leased, addr.Prefix.Addr()) {
			m.a.book.Leave(m.plan.Guest, addr.Prefix.Addr())
		}
	}
	if _, own := ends[m.detourID()]; own || n != nil && len(n.Leased) == 0 {
		m.rec.Edit(func(r *record.Report) {
			if r.TunnelDown == 0 {
				r.TunnelDown = m.rec.Now()
			}
		})
	}
	return err
}

// askLanding asks the destination how the guest is there.
func (m *outgoing) askLanding(ctx context.Context) (answer talk.LandingAnswer, err error) {
	ctx, cancel := limits.Inquire.On(ctx)
	defer cancel()
	err = m.link.Call(ctx, http.MethodGet, urlOf(m.plan.ID, "landing"), nil, &answer)
	return answer, err
}
