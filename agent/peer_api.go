package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"godwit/agent/capable"
	"godwit/agent/handed"
	"godwit/agent/lanes"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/qemu"
)

// urlOf is where another host is asked about a migration.
func urlOf(id, what string) string { return "/v1/migrations/" + id + "/" + what }

// peerAPI is what other agents of the fleet may ask.
func (a *Agent) peerAPI() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) { mux.HandleFunc(pattern, peer.Answering(f)) }
	handle("GET /v1/host", a.peerPresence)
	handle("POST /v1/migrations/{id}/check", a.peerCheck)
	handle("POST /v1/migrations/{id}/prepare", a.peerPrepare)
	handle("POST /v1/migrations/{id}/expect", a.peerExpect)
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
	handle("POST /v1/detours/{id}/over", a.peerLeadOver)
	return mux
}

// peerCheck says whether this host can take the guest, and which address it gets.
// Nothing is kept: two checks at once may be told the same address, and the
// second prepare is refused then.
func (a *Agent) peerCheck(r *http.Request) (any, error) {
	var offer talk.Offer
	if err := peer.Decode(r, &offer); err != nil {
		return nil, err
	}
	if err := cmp.Or(a.admit(r, offer.Plan), talk.CheckPlan(offer.Plan, offer.Description), a.wayBack(offer.Plan), a.wayOn(offer.Plan)); err != nil {
		return nil, err
	}
	if err := errors.Join(offer.Sample.Check(), a.capable(r.Context(), offer)); err != nil {
		return nil, err
	}
	ends, err := a.tunnelEnds(offer.Plan, a.hasTunnel)
	if err != nil {
		return nil, err
	}
	has := a.beginHas(r.Context(), offer)
	buffers := peer.KernelBuffers()
	answer := talk.Acceptance{Token: a.probes.Token(), Now: time.Now().UnixNano(), Ends: ends, Buffers: &buffers, Free: a.freeForGuests(), ReadOnly: true, Expects: true, Notes: a.config.Network.Listens()}
	if len(answer.Ends) > 0 {
		answer.Probe = answer.Ends[0].Port()
	}
	if offer.Plan.KeepsAddress() {
		answer.Next, answer.Has = offer.Plan.Held, <-has
		return answer, nil
	}
	routers := a.beginRouters(r.Context())
	next, err := a.book.Free(r.Context(), offer.Plan.Want, offer.Plan.Guest, migration.Bare(offer.Plan.Held))
	if err != nil {
		return nil, err
	}
	if offer.Description.Silent() || offer.NoIPv6 {
		if next, err = a.grantable(offer, next); err != nil {
			return nil, err
		}
	}
	offer.Plan.Next = next
	if err := talk.CheckPlan(offer.Plan, offer.Description); err != nil {
		return nil, err
	}
	if offer.Plan.Network == "mptcp" || offer.Plan.Chosen {
		id := handed.NextEndpoint(offer.Endpoint)
		for i := range next { // ids go in pairs: IPv4 has the first, IPv6 the second
			next[i].Endpoint = id
			if next[i].Prefix.Addr().Is6() {
				next[i].Endpoint = id + 1
			}
		}
	}
	answer.Notes = append(answer.Notes, noteSilent(<-routers, next)...)
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
func (a *Agent) capable(ctx context.Context, offer talk.Offer) error {
	if _, err := a.guests.Find(offer.Plan.Guest); err == nil {
		return refuses(a.config.Host, offer, migration.CodeBusy, "it has a guest of that name already")
	}
	if err := a.namesake(offer.Plan.Guest, offer.Description); err != nil {
		return err
	}
	if err := cmp.Or(offer.Description.Check(), a.guests.Readable(offer.Plan.Guest), a.guests.MACsFree(offer.Description)); err != nil {
		return err
	}
	if _, known := a.config.Peer(offer.Plan.From); !known {
		return refuses(a.config.Host, offer, migration.CodePeer, "its configuration knows no host %s; add it to peers there", offer.Plan.From)
	}
	if dirs := unwritable(a.config); len(dirs) > 0 {
		return refuses(a.config.Host, offer, migration.CodeCapacity, "%s", dirs[0])
	}
	if missing := a.config.Network.Missing(); len(missing) > 0 {
		return refuses(a.config.Host, offer, migration.CodePath, "%s; mend that on the host, or in its agent's configuration", missing[0])
	}
	host, err := qemu.ThisHost(ctx)
	if err != nil {
		return refuses(a.config.Host, offer, migration.CodeHypervisor, "%v", err)
	}
	here := capable.Host{Name: a.config.Host, Version: host.Version.String(), Accel: host.Accel, Flags: capable.Flags(offer.Facts), Free: -1, MTU: a.config.Network.MTU} // room is looked at last
	if err := here.Lacks(offer.Guest()); err != nil {
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
	var p talk.Preparation
	if err := peer.Decode(r, &p); err != nil {
		return nil, err
	}
	if err := a.admit(r, p.Plan); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if err := errors.Join(a.believe(p), a.namesake(p.Plan.Guest, p.Description)); err != nil {
		return nil, err
	}
	if err := a.book.PromiseNext(p.Plan); err != nil {
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

// peerHome leads addresses that come home with the guest to its taps here. Asked again, as its answer was lost, it says
// what came of that: one that has failed is over, and who asks for it turns back.
func (a *Agent) peerHome(r *http.Request) (any, error) {
	m, err := a.findTry(r)
	if err != nil {
		return nil, err
	}
	m.leading.Lock()
	defer m.leading.Unlock()
	if m.snapshot().Refused() { // it comes late: the guest stays where it is, and what led to it is led there again
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration %s: it was given up on %s, and nothing of it comes home", m.plan.ID, a.config.Host)}
	}
	if err := a.detours.ComeHome(m.plan.ID); err != nil {
		return nil, err
	}
	a.tellSwitch(m.plan)
	if err := a.fetchHome(context.WithoutCancel(r.Context()), m.plan.ID); err != nil { // also where its caller has gone on to ask by another path
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
	m.leading.Lock()
	defer m.leading.Unlock()
	return nil, a.sendAway(r.Context(), m.plan.ID)
}

// peerLanded tells how the landing went, once the connections were handed over.
func (a *Agent) peerLanded(r *http.Request) (any, error) {
	rec, err := a.endedFrom(r, 0)
	if err != nil {
		return nil, err
	}
	answer := talk.LandedAnswer{Report: rec.Snapshot()}
	var left []time.Duration
	for _, d := range a.detours.List(answer.Report.Guest) {
		for _, v := range d.Visiting {
			answer.Leased = append(answer.Leased, v.Addr)
			if d.Peer != answer.Report.From || v.AtHome() {
				answer.Moved = append(answer.Moved, v.Addr)
			}
		}
		if d.Peer == answer.Report.From && !d.AtHome() { // what is at home here takes nothing there
			left = append(left, d.Left())
		}
	}
	if len(left) > 0 && !slices.Contains(left, 0) { // for good, if any is
		answer.Lease = slices.Max(left)
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
		if s.Header.Kind == lanes.Memory || s.Header.Kind == lanes.Disk {
			lanes.Refuse(s, "migration "+s.Header.Migration+" is not under way on "+a.config.Host)
		}
		return
	}
	m.serveStream(s)
}
