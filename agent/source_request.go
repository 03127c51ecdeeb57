package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/internal/lasting"
	"godwit/migration"
)

// Migrate begins a migration and returns its id. The error of a request that
// cannot begin is a *migration.Problem; nothing has changed then.
func (a *Agent) Migrate(req migration.Request) (api.MigrateAnswer, error) {
	m, err := a.newOutgoing(req)
	if err != nil {
		a.metrics.Outcome(migration.AtSource, migration.Refused, peer.AsProblem(err))
		return api.MigrateAnswer{}, err
	}
	a.actors.Go(func() { m.run(a.ctx, migration.Input{Kind: migration.Start, Epoch: m.plan.Epoch}) })
	return api.MigrateAnswer{ID: m.plan.ID}, nil
}

// newOutgoing checks what can be told without asking anybody, takes the guest, and
// journals that the migration begins.
func (a *Agent) newOutgoing(req migration.Request) (*outgoing, error) {
	m, err := a.draft(req)
	if err != nil {
		return nil, err
	}
	if err := a.beginOutgoing(m); err != nil {
		m.guest.Drop(m.plan.ID)
		return nil, err
	}
	return m, nil
}

// Plan asks both hosts what a migration would be, and changes nothing. Its error is
// what the migration would be refused with.
func (a *Agent) Plan(ctx context.Context, req migration.Request) (record.Report, error) {
	m, err := a.draft(req)
	if err != nil {
		return record.Report{}, err
	}
	defer m.guest.Drop(m.plan.ID)
	for _, e := range []migration.Effect{migration.CheckHere, migration.CheckThere} {
		if err := m.perform(ctx, e); err != nil {
			return record.Report{}, err
		}
	}
	return m.rec.Snapshot(), nil
}

// draft is a migration that has not begun; the guest is taken for it.
func (a *Agent) draft(req migration.Request) (*outgoing, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	g, err := a.guests.Find(req.Guest)
	if err != nil {
		return nil, cmp.Or(a.comesHere(req.Guest), err)
	}
	if err := a.journalLeft(req.Guest, ""); err != nil { // the next agent would not know which of them has the guest
		return nil, err
	}
	if req.Network == "auto" && g.Held().Description.Network != "" {
		req.Network = g.Held().Description.Network
	}
	if req.Network == "tunnel" && req.NextAddress.IsValid() {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"migrate guest %s: it keeps its address with network tunnel, and takes no next address %s; drop --address, or name another network", req.Guest, req.NextAddress)}
	}
	if req.To == a.config.Host || req.To == a.config.Site && !a.hasSibling() {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"migrate guest %s: it is on %s already; name another site or host (known: %s)", req.Guest, req.To, a.known())}
	}
	n, ok := a.config.Find(req.To)
	if !ok {
		return nil, a.unknown("site", req.To)
	}
	link, _, err := a.link(n.Host)
	if err != nil {
		return nil, err
	}
	id := a.newID(rand.Reader)
	if err := a.guests.TakeHere(g, id); err != nil {
		return nil, err
	}
	held, err := a.settledHeld(g)
	if err != nil {
		g.Drop(id)
		return nil, err
	}
	plan := migration.Plan{
		ID: id, Guest: req.Guest, From: a.config.Host, To: n.Host, FromSite: a.config.Site, ToSite: n.Site,
		Mode: req.Mode, Transfer: req.Transfer, Network: req.Network, Tunnel: req.TunnelKind, Downtime: req.Downtime,
		Bandwidth: req.Bandwidth, Buffer: req.Buffer, Throttle: req.Throttle, Insecure: mayGoOpen(req), Want: req.NextAddress,
		Epoch: held.Epoch + 1, Held: a.routed(a.namesSubnetAgent(held.Addresses)), Active: held.Active,
	}
	m := &outgoing{
		a: a, guest: g, link: link, plan: plan, nextMode: req.Mode, itself: itselfBy(plan), work: &sourceWork{},
		rec: record.New(a.config.Host, plan, a.clock()), inbox: make(chan migration.Input, 1),
	}
	m.bandwidth.Set(plan.Bandwidth)
	if req.InsecureTransfer && !plan.Insecure {
		m.rec.Note("memory is encrypted: QEMU's own connections of transfer qemu-multifd do not keep a bandwidth; without one insecure_transfer holds")
	}
	return m, nil
}

// endingLook is between two looks whether the end of a lease is done.
const endingLook = 10 * time.Millisecond

// settledHeld is what is remembered of a guest that was taken, once the end of a lease that is under way is done, or
// what else changes its addresses. The error says that this takes too long: its storage may hang, or it answers nobody.
func (a *Agent) settledHeld(g *guests.Guest) (care.Held, error) {
	for until := time.Now().Add(limits.Ending.For); !g.TryLockAddresses(); {
		if time.Now().After(until) || !sleep(a.ctx, endingLook) {
			return care.Held{}, &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
				"guest %s: its addresses are being changed, as at the end of a lease, and that is not done within %v; try again later, and see the agent's log", g.Name(), limits.Ending.For)}
		}
	}
	defer g.UnlockAddresses()
	return g.Held(), nil
}

func (a *Agent) hasSibling() bool {
	return slices.ContainsFunc(a.config.Peers, func(n config.Neighbour) bool { return n.Site == a.config.Site })
}

// beginOutgoing journals that a migration begins, and makes it known.
func (a *Agent) beginOutgoing(m *outgoing) error {
	log, err := journal.Create(a.config.StatePath("journal"), m.plan.ID)
	if err != nil {
		return a.noJournal(m.plan.Guest, err)
	}
	m.log, m.process = log, processOf(m.guest.Machine().PID())
	log.OnSync(a.metrics.Synced)
	a.follow(m.rec, m.plan)
	m.watchGuest()
	a.mu.Lock()
	a.outgoing[m.plan.ID] = m
	a.records.Add(m.rec)
	a.mu.Unlock()
	return nil
}

// noJournal is why a migration does not begin: without its journal no agent after this one would know whose the guest is.
func (a *Agent) noJournal(guest string, err error) error {
	code, cure := migration.CodeInternal, "have state ("+a.config.State+") on a file system that can be written"
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code, cure = migration.CodeCapacity, "make room in state ("+a.config.State+")"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		cure = lasting.Cure
	}
	return &migration.Problem{Code: code, Text: fmt.Sprintf("migrate guest %s: nothing can be written down on host %s: %v; %s", guest, a.config.Host, err, cure)}
}
