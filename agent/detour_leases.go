package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/visits"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

const (
	leaseLook  = time.Second      // between looks at who needs a detour
	leaseGrace = 30 * time.Second // that a home waits longer than the host of the guest
)

// keepDetours ends each leased detour when its last user is gone or its time is up.
func (a *Agent) keepDetours(ctx context.Context) {
	speak, under := a.speakers(), &looks{}
	defer under.all.Wait()
	defer speak.Close()
	for sleep(ctx, leaseLook) {
		a.tellLeaseEnds()
		speak.Keep(a.detours.Advertised())
		if step, err := a.detours.Shifted(); step != 0 {
			a.log.Warn("the clock was stepped; leases keep their length", "by", step, "error", err)
		}
		a.catchUp()
		if guests, err := a.detours.PutBack(); len(guests) > 0 || err != nil {
			a.rarely.warn(a.log, "the host's network was changed under detours; put back", "guests", guests, "error", err)
		}
		a.forgetEnded(ctx, under)
		a.retryStandIns()
		a.retryHomes()
		a.lookAtHost(ctx, under)
		a.lookAfterAll(ctx, under)
		a.lookAtWays(ctx, under)
		a.lookAtLed(ctx, under)
		a.lookWhoIsBack(ctx, under)
	}
}

// catchUp repeats changes of detours that failed, writes down what is known of guests and could not be, and takes away
// what was announced for memory and could not be.
func (a *Agent) catchUp() {
	if err := a.endpoints.CatchUp(); err != nil {
		a.rarely.warn(a.log, "addresses for memory are announced still, or MPTCP's limits raised", "error", err)
	}
	if err := a.detours.CatchUp(); err != nil {
		a.rarely.warn(a.log, "what leads to guests", "error", err)
	}
	if err := a.guests.CatchUp(); err != nil {
		a.rarely.warn(a.log, "what is known of guests is not written down yet", "error", err)
	}
}

// lookAfter does what a detour needs by now: its tunnel stands, its lease is longer, or it ends.
func (a *Agent) lookAfter(ctx context.Context, d detour.Detour) error {
	if err := a.keepTunnel(ctx, d); err != nil {
		return err
	}
	if !d.Leased && a.underWay(migrationOf(d.ID)) {
		return nil // one that leads nothing too: of a guest that goes home with all that it has
	}
	if !d.Leased && len(d.Away)+len(d.Visiting)+len(d.Coming) > 0 {
		return a.settleOrphan(ctx, d.ID)
	}
	d, now, ok := a.detours.Look(d.ID)
	if !ok {
		return nil
	}
	if len(d.Visiting) == 0 {
		return a.lookFromHome(ctx, d, now)
	}
	if a.guests.Readable(d.Guest) != nil {
		return nil //nolint:nilerr // it was said at the start, and what leads to the guest stays
	}
	expired := !d.Until.IsZero() && now.After(d.Until)
	g, err := a.guests.Find(d.Guest)
	switch {
	case err == nil:
		return a.lookAtVisitor(ctx, g, d, expired)
	case a.guests.Expects(d.Guest): // it comes, or its QEMU does not answer yet
		return nil
	case !expired && d.LedOn(a.detours.List(d.Guest)):
		return nil
	}
	return a.endBoth(ctx, d) // the guest ended, or runs elsewhere
}

// keepTunnel has a detour's tunnel stand as long as anything may need it, and ends it then.
func (a *Agent) keepTunnel(ctx context.Context, d detour.Detour) error {
	if d.NeedsNoTunnel() && !a.underWay(migrationOf(d.ID)) {
		if tunnel.Exists(d.Tunnel.Name) {
			return detour.DropTunnel(ctx, ends.Dir(a.config), d.Tunnel.Name)
		}
		return nil
	}
	if woken, err := tunnel.Wake(ctx, d.Tunnel.Dir, d.Tunnel.Name); woken {
		a.log.Warn("a tunnel's process was stopped, and goes on", "id", d.ID, "guest", d.Guest, "tunnel", d.Tunnel.Name, "error", err)
	}
	a.extend(ctx, d)
	if err := a.restoreTunnel(ctx, d.ID); err != nil {
		a.rarely.warn(a.log, "detour", "id", d.ID, "guest", d.Guest, "error", err)
	}
	return nil
}

// lookAtVisitor ends the detours of a guest that is here, when nothing needs its addresses from elsewhere any more or
// their lease is over.
func (a *Agent) lookAtVisitor(ctx context.Context, g *guests.Guest, d detour.Detour, expired bool) error {
	if g.Migration() != "" {
		return a.prolong(d)
	}
	if len(leasedOf(g, d)) == 0 {
		return nil // for good
	}
	if !expired || d.AtHome() {
		if g.Asks().IsDeaf() || !g.Asks().Again(d) { // nobody answers, or it needed it a moment ago
			return nil
		}
		needed, _, err := a.neededOf(ctx, g, a.leased(g))
		if err != nil {
			g.Asks().LeaveAlone()
			return err
		}
		if needed {
			g.Asks().StillNeeds(d)
			a.followSurvival(ctx, g, d, false)
			return a.lookForUnneeded(ctx, g)
		}
	}
	if !g.TryLockAddresses() {
		return nil // others' leases do not wait for what is under way in it
	}
	defer g.UnlockAddresses()
	if g.Migration() != "" {
		return a.prolong(d) // it leaves just now, with these addresses
	}
	ends := a.leased(g)
	if home := a.leasedAtHome(g); expired && len(home) > 0 && g.HasChannel() {
		if needed, _, err := a.neededOf(ctx, g, home); err != nil || needed {
			return errors.Join(err, a.endVisits(ctx, g, lists.Without(ends, home), true))
		}
	}
	return a.endVisits(ctx, g, ends, expired)
}

// settleOrphan leases a detour of which no migration knows any more, and by which a guest may be
// reached; else it ends. Such a one is left where an undo failed, or a person took a journal
// away, and would keep what it leads for good.
func (a *Agent) settleOrphan(ctx context.Context, id string) error {
	if a.underWay(migrationOf(id)) {
		return nil
	}
	d, ok := a.detours.Get(id) // as it is since its migration ended
	if !ok || d.Leased || a.guests.Expects(d.Guest) || a.guests.Readable(d.Guest) != nil {
		return nil //nolint:nilerr // what cannot be read was said at the start
	}
	g, err := a.guests.Find(d.Guest)
	here, lease := err == nil, a.config.LeaseTime()
	if here && !slices.ContainsFunc(g.Held().Addresses, func(addr migration.Address) bool { return addr.Home == a.config.Host }) {
		lease = 0 // it has no address but those
	}
	a.log.Warn("detour of no migration", "id", id, "guest", d.Guest, "here", here)
	if here && len(d.Visiting) == 0 || !here && len(d.Away) == 0 {
		return errors.Join(a.sendAway(ctx, id), a.detours.Remove(ctx, id))
	}
	return a.detours.Change(d.Guest, func(all map[string]*detour.Detour) {
		if d, ok := all[id]; ok {
			if !here { // that it was flipped is not on the disk, and its taps are the next guest's
				d.Taps, d.Leaving = nil, nil
				for i := range d.Away {
					d.Away[i].Active, d.Away[i].Tap = true, ""
				}
			}
			d.LeaseFor(lease)
		}
	})
}

// underWay says whether a migration is, or a journal of it was left alone. The disk is asked when nobody waits for
// a.mu.
func (a *Agent) underWay(id string) bool {
	a.mu.Lock()
	known := a.outgoing[id] != nil || a.incoming[id] != nil || a.unread[id] != ""
	a.mu.Unlock()
	if known {
		return true
	}
	_, err := statFile(a.config.StatePath("journal", id+".journal"))
	return !errors.Is(err, os.ErrNotExist)
}

// extend keeps the tunnel's own lease ahead: it ends by itself only when no agent
// lives that could end it.
func (a *Agent) extend(ctx context.Context, d detour.Detour) {
	if !ends.Short(d.Tunnel.Lease) {
		return
	}
	t, err := tunnel.Attach(ctx, d.Tunnel.Dir, d.Tunnel.Name)
	if err != nil {
		return
	}
	until := ends.Lease()
	if err := t.Extend(ctx, until); err != nil {
		a.rarely.warn(a.log, "extend tunnel", "tunnel", d.Tunnel.Name, "error", err)
		return
	}
	err = a.detours.Change(d.Guest, func(all map[string]*detour.Detour) {
		if d, ok := all[d.ID]; ok {
			d.Tunnel.Lease = until
		}
	})
	if err != nil {
		a.rarely.warn(a.log, "extend tunnel", "tunnel", d.Tunnel.Name, "error", err)
	}
}

// endGuestDetours ends all that leads to visiting addresses of a guest here, at
// both ends. visitsAlone: what leads addresses away, and none here, stays. used: what still uses them is lost by
// that, and is written down so.
func (a *Agent) endGuestDetours(ctx context.Context, g *guests.Guest, visitsAlone, used bool) error {
	ends := func(d detour.Detour) bool { return d.Peer != "" && (!visitsAlone || len(d.Visiting) > 0) }
	err := a.takeVisits(ctx, g, a.visiting(g.Name()), ends)
	for _, d := range a.detours.List(g.Name()) {
		if !ends(d) {
			continue
		}
		a.settleSurvival(d, used)
		err = errors.Join(err, a.endBoth(ctx, d))
	}
	return err
}

// takeVisits takes visiting addresses from a guest here; of which detours they go, and of, as for settleSurvival.
func (a *Agent) takeVisits(ctx context.Context, g *guests.Guest, addrs []netip.Addr, ends func(detour.Detour) bool, of ...netip.Addr) (err error) {
	for _, d := range a.detours.List(g.Name()) {
		if ends(d) {
			a.followSurvival(ctx, g, d, true, of...) // those that were the last to use it, too
		}
	}
	asks := len(addrs) > 0 && g.HasChannel()
	g.Remember(func(h *care.Held) {
		h.Addresses = slices.DeleteFunc(h.Addresses, func(addr migration.Address) bool { return slices.Contains(addrs, addr.Prefix.Addr()) })
		if asks {
			h.GiveUp(addrs...)
		}
	})
	if asks {
		err = a.dropLeft(ctx, g)
	}
	return errors.Join(err, a.guests.SaveIfHere(g))
}

// EndedDetour is what the guest's host says when a detour has ended.
type EndedDetour struct {
	Survival *record.Survival `json:"survival,omitempty"` // of the migration that made it
	Now      int64            `json:"now,omitempty"`      // unix ns, by the clock of that, as it is said; 0: not known
}

// endBoth ends a detour here and asks its other end to do the same. A peer that
// does not answer ends it when the lease does.
func (a *Agent) endBoth(ctx context.Context, d detour.Detour) error {
	if _, _, err := a.link(d.Peer); err == nil {
		rep, _ := a.records.Report(migrationOf(d.ID))
		e := ending{Detour: d.ID, Peer: d.Peer, Ended: EndedDetour{Survival: rep.Survival}}
		if err := a.askEnding(ctx, e); err != nil {
			a.log.Warn("end the detour's other end", "id", d.ID, "peer", d.Peer, "error", err)
			if d.Leased && d.Until.IsZero() { // there no lease ends it
				a.endLater(e)
			}
		}
	}
	return a.endDetour(ctx, d)
}

// endDetour ends a detour here and writes down when, also of a migration that ended under an earlier agent.
func (a *Agent) endDetour(ctx context.Context, d detour.Detour) error {
	return a.endDetourIf(ctx, d, func(*detour.Detour) bool { return true })
}

// endDetourIf is endDetour for one of which over says so as it is then.
func (a *Agent) endDetourIf(ctx context.Context, d detour.Detour, over func(*detour.Detour) bool) error {
	a.willEnd(d)
	gone, err := a.detours.RemoveIf(ctx, d.ID, over)
	if !gone {
		a.endTold(d)
		return err
	}
	a.book.Leave(d.Guest, d.LedAway()...)
	a.tunnelEnded(d)
	return err
}

// tunnelEnded writes down that nothing takes the tunnels of a detour's migration any more, and tells of it, once: as
// the last of its ways has ended, where a home sends by another than it did.
func (a *Agent) tunnelEnded(d detour.Detour) {
	if rep, known := a.records.Report(migrationOf(d.ID)); !known || rep.TunnelDown == 0 { // else before what was at home beside that
		a.tellTunnelEnded(d)
	}
	a.endTold(d)
}

// tellTunnelEnded is tunnelEnded also where it was written down already.
func (a *Agent) tellTunnelEnded(d detour.Detour) {
	if a.needsTunnelBeside(d) {
		return
	}
	id := migrationOf(d.ID)
	now, plan := time.Now().UnixNano(), migration.Plan{ID: id, Guest: d.Guest}
	if rec, err := a.records.Kept(id); err == nil {
		rep := rec.Snapshot()
		now, plan = cmp.Or(rep.TunnelDown, rec.Now()), rep.Plan()
	}
	a.records.Amend(id, func(r *record.Report) { r.TunnelDown = now })
	switch rec := a.records.Find(id); {
	case !d.Leased:
	case rec != nil:
		rec.Event(migration.LeaseEnded)
	default: // of an earlier agent's life, or no longer among the records
		a.tell(plan, record.Event{Kind: "event", Name: migration.LeaseEnded, Host: a.config.Host, At: now})
	}
}

// endDetours ends every lease of this host at once.
func (a *Agent) endDetours(ctx context.Context) error {
	var err error
	visits.Bound(a.config, 0, a.log.Warn)
	for _, d := range a.detours.List("") {
		if !d.Leased {
			continue
		}
		if g, gerr := a.guests.Find(d.Guest); gerr == nil && len(d.Visiting) > 0 {
			err = errors.Join(err, a.endLeases(ctx, g))
			continue
		}
		err = errors.Join(err, a.endDetour(ctx, d))
	}
	return err
}

// peerEndDetour ends this end of a detour: the guest's host says that nobody needs it.
func (a *Agent) peerEndDetour(r *http.Request) (any, error) {
	d, ok := a.detours.Get(r.PathValue("id"))
	if !ok {
		return nil, nil //nolint:nilnil // ended already
	}
	if peer.Caller(r) != d.Peer {
		return nil, &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("detour %s: is with %s, not %s", d.ID, d.Peer, peer.Caller(r))}
	}
	var ended EndedDetour
	if err := peer.Decode(r, &ended); err != nil {
		return nil, err
	}
	if ended.Survival.Sane(); ended.Survival != nil {
		if _, now, ok := a.told(migrationOf(d.ID)); ok && ended.Now != 0 {
			ended.Survival.Shift(ended.Now - now)
		}
		a.records.Amend(migrationOf(d.ID), func(r *record.Report) { r.Survival = ended.Survival })
	}
	return nil, a.endDetour(context.WithoutCancel(r.Context()), d) // also when the caller does not wait: it is not asked again
}
