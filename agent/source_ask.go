package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"godwit/agent/api"
	"godwit/agent/hook"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// checkHooks refuses a migration whose guest could not be held for the hooks that there
// are, and says so where the hold is not QEMU's own.
func (m *outgoing) checkHooks() error {
	names := m.a.hooks.Blocking(migration.PreSourceSuspend)
	if len(names) == 0 {
		return nil
	}
	if m.plan.Insecure {
		return m.problem(migration.CodeHook,
			"insecure_transfer does not go with hooks of %s (%s): anybody on the way could end QEMU's hold; drop it, or take the hooks away",
			migration.PreSourceSuspend, strings.Join(names, ", "))
	}
	if m.work.facts.Hold == vm.HoldLowBandwidth {
		m.rec.Note(fmt.Sprintf("QEMU %s is held off the switchover by low bandwidth only: if it stops the guest while a hook of %s runs, the migration turns back",
			m.work.facts.Version, migration.PreSourceSuspend))
	}
	return nil
}

// askHooks tells a blocking event and asks its hooks. It returns when all have said go; when
// ctx ends the hook that runs is killed.
func (m *outgoing) askHooks(ctx context.Context, name migration.EventName) (asked int, err error) {
	m.rec.Event(name)
	call := callOf(m.a.config.Host, m.plan, record.Event{At: m.rec.Now(), Name: name, Phase: m.state.Phase()})
	asked, err = m.a.hooks.Ask(ctx, call)
	if ctx.Err() != nil {
		return asked, context.Cause(ctx)
	}
	return asked, err
}

// askStart asks before anything is changed. From its end on the migration has started.
func (m *outgoing) askStart(ctx context.Context) error {
	m.rec.SetPlan(m.plan)
	if _, err := m.askHooks(ctx, migration.PreMigrationStart); err != nil {
		return err
	}
	m.rec.Event(migration.MigrationStart)
	return nil
}

// askSuspend asks before the guest is paused. It runs on meanwhile, and QEMU is held and
// goes on copying; so what is left must fit the budget again when the last hook is done.
func (m *outgoing) askSuspend(ctx context.Context) error {
	held, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		m.watchHold(held, end)
	}()
	began := time.Now()
	asked, err := m.askHooks(held, migration.PreSourceSuspend)
	end(nil)
	<-watched
	if err != nil {
		return err
	}
	if asked == 0 {
		m.askAhead()
		return nil
	}
	m.rec.Note(fmt.Sprintf("hooks of %s held the guest here for %v", migration.PreSourceSuspend, time.Since(began).Round(time.Millisecond)))
	if m.plan.Mode == "stopcopy" {
		return nil
	}
	n, _ := m.a.config.Peer(m.plan.To)
	if err := m.awaitFit(ctx, m.paths(n)); err != nil {
		return err
	}
	m.askAhead() // last: what it has heard is of now
	return nil
}

// holdLook is between two looks at a copy that is held for hooks.
const holdLook = 100 * time.Millisecond

// watchHold ends the wait for hooks when the copy breaks or QEMU stops the guest by itself.
func (m *outgoing) watchHold(ctx context.Context, end context.CancelCauseFunc) {
	for sleep(ctx, holdLook) {
		p, err := m.guest.Machine().Progress(ctx)
		if err == nil && p.Status.Ended() {
			err = m.copyEnded(ctx, p)
		}
		if err == nil {
			err = m.stoodBefore(ctx, p.Status)
		}
		if err == nil && m.work.facts.Hold != vm.HoldAck && (p.Status == vm.PreSwitchover || p.Status == vm.Device) {
			err = m.problem(migration.CodeHypervisor,
				"QEMU %s stopped it while a hook of %s ran; use QEMU 8.1 or newer, or a hook that takes less time",
				m.work.facts.Version, migration.PreSourceSuspend)
		}
		if err == nil {
			_, err = m.work.mirrors.Left(ctx)
			err = m.disksEnded(ctx, m.work.mirrors, err)
		}
		if err != nil && ctx.Err() == nil {
			end(err)
			return
		}
	}
}

// callOf is what hooks of a host are told of an event.
func callOf(host string, plan migration.Plan, e record.Event) hook.Call {
	return hook.Call{
		Event: e.Name, Host: host, Role: plan.RoleOf(host), Phase: e.Phase, Time: time.Unix(0, e.At), Text: e.Text,
		Old: migration.Bare(plan.Held), Next: migration.Bare(plan.Next), Plan: plan,
	}
}

// follow tells the events of a migration to this host's hooks and to those who watch all
// migrations, and counts them. Blocking ones are asked instead, where they are due.
func (a *Agent) follow(rec *record.Record, plan migration.Plan) {
	a.count(rec, plan)
	rec.Told = a.tell
}

// tell is what follow has done with each event.
func (a *Agent) tell(plan migration.Plan, e record.Event) {
	a.feed.publish(api.FeedEvent{Migration: plan.ID, Guest: plan.Guest, Event: e})
	if e.Kind != "event" {
		return
	}
	a.metrics.Told(e.Name)
	if moment, ok := migration.MomentOf(e.Name); ok && !moment.Blocks {
		a.hooks.Tell(callOf(a.config.Host, plan, e))
	}
}

// hookNote keeps what a person should know of a hook with its migration, which may have ended meanwhile, or under an
// earlier agent. Nothing waits for the disk.
func (a *Agent) hookNote(c hook.Call, text string) {
	a.log.Warn("hook", "migration", c.Plan.ID, "event", c.Event, "note", text)
	keep := func(r *record.Report) { r.Notes = append(r.Notes, text) }
	if rec := a.records.Find(c.Plan.ID); rec != nil {
		rec.Note(text)
		keep = func(*record.Report) {} // it has it
	}
	a.noting.Go(func() { a.records.Amend(c.Plan.ID, keep) })
}
