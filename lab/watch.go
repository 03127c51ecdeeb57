package lab

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/migration"
)

// request asks the guest's agent for the migration, and follows it in the
// background until its outcome.
func (r *run) request(ctx context.Context, m *move) {
	host, step := r.w.agents[m.from], m.step
	r.beforeMove(m)
	if r.opts.Plain {
		close(m.answered)
		r.wg.Go(func() { r.movePlainly(ctx, m) })
		return
	}
	req := migration.Request{
		Guest: step.Guest, To: step.To, Mode: step.Mode, Transfer: step.Transfer, Network: step.Network,
		Downtime: step.Downtime, Bandwidth: step.Bandwidth, InsecureTransfer: step.InsecureTransfer, Throttle: step.Throttle,
	}
	var id string
	err := r.onceThere(ctx, host, func() (err error) {
		id, err = host.client.Migrate(ctx, req)
		return err
	})
	var problem *migration.Problem
	if err != nil && !errors.As(err, &problem) {
		id, err = r.begunBy(ctx, host, m.guest, err)
	}
	if err == nil {
		m.id = id
	}
	close(m.answered)
	if err != nil {
		m.refuse(err)
		r.finishMove(m)
		return
	}
	r.wg.Go(func() {
		r.follow(ctx, host, m)
		r.finishMove(m)
	})
}

// onceThere asks an agent, which may be being started again: then until it answers.
func (r *run) onceThere(ctx context.Context, host *hostAgent, ask func() error) error {
	err := ask()
	for api.NotAsked(err) && !host.goneForGood() && r.due(ctx, 100*time.Millisecond) {
		err = ask()
	}
	return err
}

// begunBy is the migration of a guest that its agent began before it ended, so that nobody heard its answer; lost: what
// there is to say where it began none, or is not started again.
func (r *run) begunBy(ctx context.Context, host *hostAgent, guest string, lost error) (id string, err error) {
	known := map[string]bool{}
	for _, m := range r.movesNow() {
		select {
		case <-m.answered:
			known[m.id] = true
		default:
		}
	}
	for until := time.Now().Add(agentReady); time.Now().Before(until) && !host.goneForGood() && r.due(ctx, 100*time.Millisecond); {
		all, err := host.client.Reports(ctx)
		if err != nil {
			continue
		}
		for _, rep := range all {
			if rep.Guest == guest && !known[rep.ID] {
				return rep.ID, nil
			}
		}
		break
	}
	return "", lost
}

// follow reads the migration's story until it is over. An agent that is killed
// and started again goes on telling it; its events begin anew then. One whose answer was lost tells again what was heard.
func (r *run) follow(ctx context.Context, host *hostAgent, m *move) {
	after, heard, born := 0, 0, int64(0)
	var stands leaderless
	var dead, looked time.Time
	for {
		from := after
		if !dead.IsZero() && after > 0 && clock.Sleep(ctx, deadEndEvery) {
			from-- // which it answers at once
		}
		ask, cancel := context.WithTimeout(ctx, 15*time.Second)
		part, err := host.client.Events(ask, m.id, from)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			var problem *migration.Problem
			if errors.As(err, &problem) && problem.Code == migration.CodeUsage && m.takeReport(ctx, host) {
				return
			}
			after = 0
			if host.goneForGood() && (r.landedThere(ctx, m) || r.leaderless(ctx, host, m, &stands)) || !clock.Sleep(ctx, 100*time.Millisecond) {
				return
			}
			continue
		}
		if part.Born != born && born != 0 {
			born, after, heard = part.Born, 0, 0
			continue
		}
		if time.Since(looked) > deadEndEvery {
			if looked = time.Now(); r.deadEnd(ctx, host, m, &dead) {
				return
			}
		}
		born = part.Born
		for _, e := range part.Events {
			if after = e.N; after > heard {
				heard = after
				r.heard(ctx, m, e)
			}
		}
		if part.Over && m.takeReport(ctx, host) {
			return
		}
	}
}

// takeReport keeps what a host's agent reports of the migration, and says whether it has.
func (m *move) takeReport(ctx context.Context, host *hostAgent) bool {
	rep, err := host.client.Report(ctx, m.id)
	if err == nil {
		m.set(&rep)
	}
	return err == nil
}

// landedThere asks the destination for a migration whose source's agent was killed and is not started
// again, and says whether it is over there.
func (r *run) landedThere(ctx context.Context, m *move) bool {
	ask, cancel := context.WithTimeout(ctx, lastWordTime)
	defer cancel()
	to := r.resolve(m)
	rep, err := r.w.agents[to].client.Report(ask, m.id)
	if err == nil && rep.Resumed != 0 { // no event of the source's tells
		r.w.moved(m.guest, to)
	}
	if err != nil || rep.Outcome != migration.Completed {
		return false
	}
	m.mu.Lock()
	m.there = &rep
	m.mu.Unlock()
	for _, p := range rep.Phases { // steps may wait for those that only the destination told
		r.heard(ctx, m, record.Event{Kind: "phase", Phase: p.Name, At: p.Start})
	}
	return true
}

// heard takes one event of the migration in.
func (r *run) heard(ctx context.Context, m *move, e record.Event) {
	m.mu.Lock()
	switch e.Kind {
	case "phase":
		_, seen := m.started[e.Phase]
		m.enter(e, seen)
		if !seen {
			m.started[e.Phase] = time.Unix(0, e.At)
			defer r.phaseBegan(ctx, m, e.Phase, time.Unix(0, e.At))
			defer r.learnTunnels(ctx, m, e.Phase)
		}
	case "event":
		m.events = append(m.events, e)
	case "progress":
		var p record.CopyProgress // a new one: what is read into a map stays in all who have it
		if json.Unmarshal(e.Data, &p) == nil {
			m.progress = p
			m.wire = append(m.wire, wireSample{time.Unix(0, e.At), p.Wire})
			m.sawPages(e.At, p)
		}
	}
	m.mu.Unlock()
	if e.Kind == "event" {
		r.onEvent(ctx, m, e)
	}
}

// enter notes a phase that began: the first time, or again where the source began again; mu is held. What an agent
// tells a second time began no later than the last.
func (m *move) enter(e record.Event, seen bool) {
	at, n := time.Unix(0, e.At), len(m.begun)
	switch {
	case !seen:
	case n > 0 && e.Host == m.from && at.After(m.begun[n-1].at):
		m.progress = record.CopyProgress{} // of the try before
	default:
		return
	}
	m.begun, m.phase = append(m.begun, phaseBegin{e.Phase, at}), e.Phase
}

// onEvent does what the lab hangs on a migration's events.
func (r *run) onEvent(ctx context.Context, m *move, e record.Event) {
	if e.Name == migration.TargetResume {
		r.w.moved(m.guest, r.resolve(m))
	}
	if e.Name != migration.MigrationStart && e.Name != migration.HandoverDone {
		return
	}
	rep, err := r.reportOf(ctx, m, e)
	if err != nil {
		return
	}
	if e.Name == migration.MigrationStart {
		m.mu.Lock()
		m.early = &rep
		m.mu.Unlock()
	}
	r.took(m.guest, addressesOf(rep.Next), false) // before anything goes to it there; another may have been chosen since
	r.probe(m.guest, asked(e.Name, &rep))
}

// reportOf is what the host tells of a migration at which an event was: its destination knows first which next
// addresses the guest has, where another was taken in the handover. Where that does not answer, its source's has to do.
func (r *run) reportOf(ctx context.Context, m *move, e record.Event) (record.Report, error) {
	if there := r.w.agents[e.Host]; there != nil && e.Name == migration.HandoverDone {
		if rep, err := there.client.Report(ctx, m.id); err == nil && len(rep.Next) > 0 {
			return rep, nil
		}
	}
	return r.w.agents[m.from].client.Report(ctx, m.id)
}

// asked are the addresses that the prober asks from an event on: both, while the guest moves, and only those that it
// has afterwards. So the router at the destination is asked for one that nobody has yet, over and over, and agents are
// to see to it that it knows better when clients come.
func asked(since migration.EventName, rep *record.Report) []netip.Addr {
	switch {
	case since == migration.HandoverDone && rep.Network == "tunnel": // also where the handover failed, and the next one was taken back
		return targets(goesBy(rep.Old))
	case since == migration.HandoverDone:
		return targets(rep.Next)
	}
	return targets(goesBy(rep.Old), rep.Next)
}

// resolve is the host that a move goes to, as the agent chose it.
func (r *run) resolve(m *move) string {
	hosts := r.w.scenario.Hosts(m.to)
	if len(hosts) == 1 {
		return hosts[0]
	}
	for _, h := range hosts {
		if h != m.from {
			return h
		}
	}
	return m.to
}

// goesBy are the addresses that a guest goes by: the first of each family, of where its first one is from. The
// others are of earlier stays, which tunnels keep.
func goesBy(held []migration.Address) (out []migration.Address) {
	for _, a := range held {
		if a.Home == held[0].Home && !slices.ContainsFunc(out, func(o migration.Address) bool { return o.Prefix.Addr().Is4() == a.Prefix.Addr().Is4() }) {
			out = append(out, a)
		}
	}
	return out
}

// targets are the addresses that a prober asks: of each list those of IPv4, and those of IPv6
// where a site has no other.
func targets(lists ...[]migration.Address) []netip.Addr {
	var out []netip.Addr
	for _, list := range lists {
		v6 := !slices.ContainsFunc(list, func(a migration.Address) bool { return a.Prefix.Addr().Is4() })
		for _, a := range list {
			if a.Prefix.Addr().Is6() == v6 {
				out = append(out, a.Prefix.Addr())
			}
		}
	}
	return out
}
