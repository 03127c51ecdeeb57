package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/qemu"
)

// peerAPI is what other agents of the fleet may ask.
func (a *Agent) peerAPI() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			value, err := f(r)
			peer.Answer(w, value, err)
		})
	}
	handle("GET /v1/host", a.peerPresence)
	handle("POST /v1/migrations/{id}/check", a.peerCheck)
	handle("POST /v1/migrations/{id}/prepare", a.peerPrepare)
	handle("POST /v1/migrations/{id}/home", a.peerHome)
	handle("POST /v1/migrations/{id}/away", a.peerAway)
	handle("POST /v1/migrations/{id}/disks", a.peerDisks)
	handle("POST /v1/migrations/{id}/release", a.peerRelease)
	handle("POST /v1/migrations/{id}/abort", a.peerAbort)
	handle("POST /v1/migrations/{id}/refill", a.peerRefill)
	handle("GET /v1/migrations/{id}/course", a.peerCourse)
	handle("POST /v1/migrations/{id}/landed", a.peerLanded)
	handle("GET /v1/migrations/{id}/events", a.peerEvents)
	handle("GET /v1/migrations/{id}/landing", a.peerLanding)
	handle("POST /v1/detours/repoint", a.peerRepoint)
	handle("POST /v1/detours/handed", a.peerHanded)
	handle("POST /v1/detours/led", a.peerLed)
	handle("POST /v1/detours/back", a.peerGiveBack)
	handle("POST /v1/detours/{id}/end", a.peerEndDetour)
	handle("POST /v1/detours/{id}/prolong", a.peerProlong)
	return mux
}

// peerCheck says whether this host can take the guest, and which address it gets.
// Nothing is kept: two checks at once may be told the same address, and the
// second prepare is refused then.
func (a *Agent) peerCheck(r *http.Request) (any, error) {
	var offer Offer
	if err := peer.Decode(r, &offer); err != nil {
		return nil, err
	}
	if err := cmp.Or(a.admit(r, offer.Plan), checkPlan(offer.Plan, offer.Description), a.wayBack(offer.Plan)); err != nil {
		return nil, err
	}
	if err := errors.Join(offer.Sample.Check(), a.capable(r.Context(), offer)); err != nil {
		return nil, err
	}
	has := a.beginHas(r.Context(), offer)
	buffers := peer.KernelBuffers()
	answer := Acceptance{Token: a.probes.Token(), Now: time.Now().UnixNano(), Probe: a.probePort(offer.Plan.From), Buffers: &buffers, Free: a.freeForGuests(), ReadOnly: true}
	if offer.Plan.KeepsAddress() {
		answer.Next, answer.Has = offer.Plan.Held, <-has
		return answer, nil
	}
	next, err := a.freeAddresses(r.Context(), offer.Plan.Want, offer.Plan.Guest, offer.Plan.Held)
	if err != nil {
		return nil, err
	}
	if offer.Description.Silent() || offer.NoIPv6 {
		if next, err = a.grantable(offer, next); err != nil {
			return nil, err
		}
	}
	if offer.Plan.Network == "mptcp" || offer.Plan.Chosen {
		id := nextEndpoint(offer.Endpoint)
		for i := range next { // ids go in pairs: IPv4 has the first, IPv6 the second
			next[i].Endpoint = id
			if next[i].Prefix.Addr().Is6() {
				next[i].Endpoint = id + 1
			}
		}
	}
	answer.Next, answer.Has, answer.Now = next, <-has, time.Now().UnixNano()
	return answer, nil
}

// admit checks that the caller is the plan's source and this host its destination.
func (a *Agent) admit(r *http.Request, plan migration.Plan) error {
	caller := peer.Caller(r)
	if plan.ID != r.PathValue("id") || !migration.ValidID(plan.ID) {
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration id %q: not one", plan.ID)}
	}
	if caller != plan.From || plan.To != a.config.Host {
		return &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf(
			"migration %s: from %s to %s, but %s asks %s", plan.ID, plan.From, plan.To, caller, a.config.Host)}
	}
	return nil
}

// capable says what this host lacks for the guest.
func (a *Agent) capable(ctx context.Context, offer Offer) error {
	if _, err := a.guests.find(offer.Plan.Guest); err == nil {
		return refuses(a.config.Host, offer, migration.CodeBusy, "it has a guest of that name already")
	}
	if err := a.namesake(offer.Plan.Guest, offer.Description); err != nil {
		return err
	}
	if err := cmp.Or(offer.Description.Check(), a.guests.readable(offer.Plan.Guest), a.guests.macsFree(offer.Description)); err != nil {
		return err
	}
	if _, known := a.config.Find(offer.Plan.From); !known {
		return refuses(a.config.Host, offer, migration.CodePeer, "its configuration knows no host %s; add it to peers there", offer.Plan.From)
	}
	if missing := a.config.Network.Missing(); len(missing) > 0 {
		return refuses(a.config.Host, offer, migration.CodePath, "%s; mend that on the host, or in its agent's configuration", missing[0])
	}
	host, err := qemu.ThisHost(ctx)
	if err != nil {
		return refuses(a.config.Host, offer, migration.CodeHypervisor, "%v", err)
	}
	here := offering{host: a.config.Host, version: host.Version.String(), accel: host.Accel, flags: cpuFlags(offer.Facts), free: -1, mtu: a.config.Network.MTU} // room is looked at last
	if err := here.lacks(offer); err != nil {
		return err
	}
	if err := a.hasTunnel(offer.Plan); err != nil {
		return err
	}
	if err := netstate.Barred(a.config.Network.Bridge); err != nil {
		return refuses(a.config.Host, offer, migration.CodePath, "%v", err)
	}
	for _, addr := range offer.Plan.Held {
		if err := netstate.Speaks(addr.Prefix.Addr()); err != nil {
			return refuses(a.config.Host, offer, migration.CodePath, "%v", err)
		}
	}
	if err := a.sameRoot(offer); err != nil {
		return err
	}
	return a.roomForAll(offer, everyone)
}

// peerPrepare makes everything ready and answers when it is.
func (a *Agent) peerPrepare(r *http.Request) (any, error) {
	var p Preparation
	if err := peer.Decode(r, &p); err != nil {
		return nil, err
	}
	if err := a.admit(r, p.Plan); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := errors.Join(a.believe(p), a.namesake(p.Plan.Guest, p.Description)); err != nil {
		return nil, err
	}
	if err := a.comesFromThere(r.Context(), p.Plan); err != nil {
		return nil, err
	}
	if err := a.journalLeft(p.Plan.Guest, p.Plan.ID); err != nil { // it may be here, or have left for somewhere else
		return nil, err
	}
	a.awaitEarlier(r.Context(), p.Plan)
	m, err := a.incomingFor(p)
	if err != nil {
		return nil, err
	}
	state, err := m.await(r.Context(), func(s migration.Destination) bool { return s.Landing != "" && s.Landing != migration.Receiving })
	if err != nil {
		return nil, err
	}
	if state.Refused() {
		return nil, state.Problem
	}
	return m.work.prepared, nil
}

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

// awaitEarlier waits until an earlier try of a migration, which is undone, is written down too: its source begins again when it
// hears of the first, and storage may be slow.
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

// incomingFor begins the migration at this side, or finds it if the source asks again. a.mu is not held while its journal is made: a
// release that waits for that disk makes another guest stand still.
func (a *Agent) incomingFor(p Preparation) (*incoming, error) {
	m, found, err := a.admitIncoming(p)
	if found || err != nil {
		return m, err
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

// admitIncoming makes a migration known that may begin here, and whose name, disks and addresses are its own from then on; or finds it.
func (a *Agent) admitIncoming(p Preparation) (m *incoming, found bool, err error) {
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
	if err := a.guests.nameFree(p.Plan.Guest); err != nil { // before it has a journal: a later agent would take that guest for this one
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
		a: a, offer: Offer{Plan: p.Plan, Description: p.Description, Facts: p.Facts, Endpoint: p.Endpoint}, plan: p.Plan,
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
	m, ok := a.incoming[id]
	delete(a.incoming, id)
	a.mu.Unlock()
	if ok { // not under a.mu: who promises an address asks by it what is taken
		a.promised.release(m.plan.Guest, netip.Addr{})
	}
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

// findTry is findIncoming for a Turn. One that an earlier try asked for, and that comes late, would lead packets to a guest that
// is not here yet, or away from one that is.
func (a *Agent) findTry(r *http.Request) (*incoming, error) {
	var ask Turn
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

// peerHome leads addresses that come home with the guest to its taps here.
func (a *Agent) peerHome(r *http.Request) (any, error) {
	m, err := a.findTry(r)
	if err != nil {
		return nil, err
	}
	if m.snapshot().Refused() { // it comes late: the guest stays where it is, and what led to it is led there again
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration %s: it was given up on %s, and nothing of it comes home", m.plan.ID, a.config.Host)}
	}
	if err := a.detours.ComeHome(m.plan.ID); err != nil {
		return nil, err
	}
	a.tellSwitch(m.plan)
	if err := a.fetchHome(r.Context(), m.plan.ID); err != nil {
		return nil, err
	}
	a.tellSwitch(m.plan) // a subnet agent may have answered for the address meanwhile
	return nil, nil
}

// peerAway undoes peerHome: the guest stays at the source.
func (a *Agent) peerAway(r *http.Request) (any, error) {
	m, err := a.findTry(r)
	if err != nil {
		return nil, err
	}
	return nil, a.sendAway(r.Context(), m.plan.ID)
}

// peerLanded tells how the landing went, once the connections were handed over.
func (a *Agent) peerLanded(r *http.Request) (any, error) {
	rec, err := a.endedFrom(r, 0)
	if err != nil {
		return nil, err
	}
	answer := LandedAnswer{Report: rec.Snapshot(), Landing: migration.Landed}
	for _, d := range a.detours.List(answer.Report.Guest) {
		for _, v := range d.Visiting {
			answer.Leased = append(answer.Leased, v.Addr)
			if d.Peer != answer.Report.From || v.AtHome() {
				answer.Moved = append(answer.Moved, v.Addr)
			}
		}
		if d.Peer == answer.Report.From {
			answer.Lease = d.Left()
		}
	}
	return answer, nil
}

// stream accepts memory and disk streams of migrations that are under way here.
func (a *Agent) stream(s *peer.Stream) {
	a.mu.Lock()
	m, ok := a.incoming[s.Header.Migration]
	a.mu.Unlock()
	if !ok || m.plan.From != s.Caller {
		a.log.Warn("stream refused: no such migration", "migration", s.Header.Migration, "from", s.Caller)
		if s.Header.Kind == laneKind || s.Header.Kind == diskKind {
			refuseLane(s, "migration "+s.Header.Migration+" is not under way on "+a.config.Host)
		}
		return
	}
	m.serveStream(s)
}
