package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
)

// Migrate begins a migration and returns its id. The error of a request that
// cannot begin is a *migration.Problem; nothing has changed then.
func (a *Agent) Migrate(req migration.Request) (MigrateAnswer, error) {
	m, err := a.newOutgoing(req)
	if err != nil {
		a.metrics.Outcome(migration.AtSource, migration.Refused, peer.AsProblem(err))
		return MigrateAnswer{}, err
	}
	a.actors.Go(func() { m.run(a.ctx, migration.Input{Kind: migration.Start, Epoch: m.plan.Epoch}) })
	return MigrateAnswer{ID: m.plan.ID}, nil
}

// MigrateAnswer names the migration that has begun.
type MigrateAnswer struct {
	ID string `json:"id"`
}

// supported is what this version performs, of the values that a request may name.
var (
	supportedModes     = []string{"auto", "precopy", "hybrid", "postcopy", "stopcopy"}
	supportedTransfers = []string{"auto", "lanes", "mptcp", "qemu-tcp", "qemu-mptcp", "qemu-multifd", "qemu-xbzrle"}
)

// CheckRequest fills defaults and refuses what no migration can mean, of whatever guest where none is named.
func CheckRequest(req *migration.Request) error {
	wrong := func(format string, a ...any) error {
		of := "migrate guest " + req.Guest
		if req.Guest == "" {
			of = "migrate guests"
		}
		return &migration.Problem{Code: migration.CodeUsage, Text: of + ": " + fmt.Sprintf(format, a...)}
	}
	defaults := []struct {
		value     *string
		what      string
		known     []string
		supported []string
	}{
		{&req.Mode, "mode", migration.Modes, supportedModes},
		{&req.Transfer, "transfer", migration.Transfers, supportedTransfers},
		{&req.Network, "network", migration.Networks, migration.Networks},
		{&req.TunnelKind, "tunnel", migration.Tunnels, migration.Tunnels},
	}
	for _, d := range defaults {
		if *d.value == "" {
			*d.value = "auto"
		}
		switch {
		case !slices.Contains(d.known, *d.value):
			return wrong("%s %q is unknown; allowed: %s", d.what, *d.value, strings.Join(d.known, ", "))
		case !slices.Contains(d.supported, *d.value):
			return wrong("%s %s is not there yet; use one of: %s", d.what, *d.value, strings.Join(d.supported, ", "))
		}
	}
	switch {
	case req.Downtime != 0 && req.Downtime < time.Millisecond || req.Downtime > time.Minute:
		return wrong("downtime budget of %v; between 1ms and 1m", req.Downtime)
	case !sensible(req.Bandwidth):
		return wrong("bandwidth of %d bit/s; at least 8kbit, or 0 for no limit", req.Bandwidth)
	case req.Buffer != 0 && req.Buffer < leastRequested:
		return wrong("buffer of %d bytes; at least %d", req.Buffer, leastRequested)
	case req.Buffer != 0 && strings.HasPrefix(req.Transfer, "qemu-"):
		return wrong("buffer goes with the transfers lanes and mptcp only; drop it, or name one of them")
	case req.Throttle < 0 || req.Throttle > 99:
		return wrong("throttle of %d %%; between 1 and 99, or 0 for none", req.Throttle)
	case req.Throttle > 0 && req.Mode != "precopy":
		return wrong("throttle goes with mode precopy only; drop it, or name that mode")
	case req.InsecureTransfer && !strings.HasPrefix(req.Transfer, "qemu-"):
		return wrong("insecure_transfer goes with the qemu-* transfers only; drop it, or name one")
	}
	if mode := req.Mode; (mode == "hybrid" || mode == "postcopy") && strings.HasPrefix(req.Transfer, "qemu-") {
		return wrong("mode %s goes with the transfers lanes and mptcp only; drop the transfer, or name one of them", mode)
	}
	if req.Downtime == 0 {
		req.Downtime = migration.DefaultDowntime
	}
	return nil
}

// newOutgoing checks what can be told without asking anybody, takes the guest, and
// journals that the migration begins.
func (a *Agent) newOutgoing(req migration.Request) (*outgoing, error) {
	m, err := a.draft(req)
	if err != nil {
		return nil, err
	}
	if err := a.beginOutgoing(m); err != nil {
		m.guest.drop(m.plan.ID)
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
	defer m.guest.drop(m.plan.ID)
	for _, e := range []migration.Effect{migration.CheckHere, migration.CheckThere} {
		if err := m.perform(ctx, e); err != nil {
			return record.Report{}, err
		}
	}
	return m.rec.Snapshot(), nil
}

// draft is a migration that has not begun; the guest is taken for it.
func (a *Agent) draft(req migration.Request) (*outgoing, error) {
	if err := CheckRequest(&req); err != nil {
		return nil, err
	}
	g, err := a.guests.find(req.Guest)
	if err != nil {
		return nil, err
	}
	if err := a.journalLeft(req.Guest, ""); err != nil { // the next agent would not know which of them has the guest
		return nil, err
	}
	if req.Network == "auto" && g.Held.Description.Network != "" {
		req.Network = g.Held.Description.Network
	}
	if req.To == a.config.Host || req.To == a.config.Site && !a.hasSibling() {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migrate guest %s: it is on %s already", req.Guest, req.To)}
	}
	link, n, err := a.link(req.To)
	if err != nil {
		return nil, err
	}
	id := newID()
	if err := g.take(id); err != nil {
		return nil, err
	}
	g.ending.Lock() // until the end of a lease that is under way is done
	held := g.held()
	g.ending.Unlock()
	plan := migration.Plan{
		ID: id, Guest: req.Guest, From: a.config.Host, To: n.Host, FromSite: a.config.Site, ToSite: n.Site,
		Mode: req.Mode, Transfer: req.Transfer, Network: req.Network, Tunnel: req.TunnelKind, Downtime: req.Downtime,
		Bandwidth: req.Bandwidth, Buffer: req.Buffer, Throttle: req.Throttle, Insecure: req.InsecureTransfer, Want: req.NextAddress,
		Epoch: held.Epoch + 1, Held: a.routed(a.namesSubnetAgent(held.Addresses)), Active: held.Active,
	}
	m := &outgoing{
		a: a, guest: g, link: link, plan: plan, work: &sourceWork{},
		rec: record.New(a.config.Host, plan, a.clock()), inbox: make(chan migration.Input, 1),
	}
	m.bandwidth.Set(plan.Bandwidth)
	return m, nil
}

func (a *Agent) hasSibling() bool {
	return slices.ContainsFunc(a.config.Peers, func(n config.Neighbour) bool { return n.Site == a.config.Site })
}

// beginOutgoing journals that a migration begins, and makes it known.
func (a *Agent) beginOutgoing(m *outgoing) error {
	log, err := journal.Create(a.config.StatePath("journal"), m.plan.ID)
	if err != nil {
		return err
	}
	m.log = log
	log.OnSync(a.metrics.Synced)
	a.follow(m.rec, m.plan)
	m.watchGuest()
	a.mu.Lock()
	a.outgoing[m.plan.ID] = m
	a.records.Add(m.rec)
	a.mu.Unlock()
	return nil
}
