package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"godwit/agent/compare"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/hold"
	"godwit/vm"
)

// perform does one effect. Each is idempotent, and ends soon after ctx does.
func (m *outgoing) perform(ctx context.Context, e migration.Effect) error {
	limit := m.limitOf(e)
	if limit.For > 0 && e != migration.Flip { // each try of which has it
		var cancel context.CancelFunc
		ctx, cancel = limit.On(ctx)
		defer cancel()
	}
	err := m.effect(ctx, e)
	told := limits.TimedOut("migration "+m.plan.ID, limits.Says(ctx, err))
	if errors.Is(err, vm.ErrUnasked) && !errors.Is(told, vm.ErrUnasked) { // a time-out tells no more than itself
		return errors.Join(told, vm.ErrUnasked)
	}
	return told
}

// limitOf is that of an effect, with what it takes where disks move.
func (m *outgoing) limitOf(e migration.Effect) limits.Limit {
	limit, ok := effectLimits[e]
	if !ok {
		limit = limits.Undo
	}
	switch {
	case m.work.mirrors == nil:
	case e == migration.Flip: // slow storage may take all that there is, see disks.Source.FlushShort: memory comes to rest after it
		limit.For += limits.Settle.For
	case e == migration.Pause: // they have a limit of their own: see finishDisks
		limit.For += m.plan.Downtime
	}
	return limit
}

// effectLimits bound each effect; those without have their own inside.
var effectLimits = map[migration.Effect]limits.Limit{
	migration.CheckHere:    limits.CheckHere,
	migration.CheckThere:   limits.CheckThere,
	migration.AskStart:     {}, // each hook has one
	migration.PrepareThere: limits.PrepareThere,
	migration.PrepareHere:  limits.PrepareHere,
	migration.SeedDisks:    {},
	migration.CopyMemory:   {},
	migration.AskSuspend:   {},
	migration.Flip:         limits.Flip,
	migration.Pause:        limits.Pause,
	migration.Release:      {},
	migration.AwaitLanding: {},
	migration.CleanSource:  limits.CleanSource,
}

func (m *outgoing) effect(ctx context.Context, e migration.Effect) error {
	if m.guest.Machine() == nil && slices.Contains(needsQEMU, e) {
		return goneProblem(m.plan.Guest, "was lost with its host or its QEMU")
	}
	switch e {
	case migration.CheckHere:
		return m.checkHere(ctx)
	case migration.CheckThere:
		return m.checkThere(ctx)
	case migration.AskStart:
		return m.askStart(ctx)
	case migration.PrepareThere:
		return m.prepareThere(ctx)
	case migration.PrepareHere:
		return m.prepareHere(ctx)
	case migration.SeedDisks:
		return m.stayReady(ctx, m.seedDisks)
	case migration.CopyMemory:
		return m.stayReady(ctx, m.copyFlushed)
	case migration.AskSuspend:
		return m.stayReady(ctx, m.askSuspend)
	case migration.Flip:
		return m.flip(ctx)
	case migration.Pause:
		return m.pause(ctx)
	case migration.Release:
		return m.letGo(ctx)
	case migration.AwaitLanding:
		return m.awaitLanding(ctx)
	case migration.CleanSource:
		return m.cleanSource(ctx)
	}
	return m.undo(ctx, e)
}

// needsQEMU are the effects that ask the guest's QEMU here; after the host's reboot
// there is none.
var needsQEMU = []migration.Effect{
	migration.CheckHere, migration.CopyMemory, migration.Pause, migration.Resume, migration.UndoCopyMemory, migration.UndoSeedDisks,
}

func (m *outgoing) undo(ctx context.Context, e migration.Effect) error {
	switch e {
	case migration.Resume:
		return m.resume(ctx)
	case migration.Unflip:
		return m.unflip(ctx)
	case migration.UndoCopyMemory:
		return m.undoCopy(ctx)
	case migration.UndoSeedDisks:
		return m.undoSeed(ctx)
	case migration.UndoPrepareHere:
		m.unreadyGuest()
		m.spendIDs()
		m.endLanes()
		err := errors.Join(m.endDirect(ctx), m.a.detours.Remove(ctx, m.detourID()))
		m.rec.Edit(func(r *record.Report) {
			if err == nil && r.TunnelUp != 0 && r.TunnelDown == 0 {
				r.TunnelDown = m.rec.Now()
			}
		})
		return err
	case migration.UndoPrepareThere:
		return m.askAbort(ctx)
	}
	return fmt.Errorf("effect %q: unknown", e)
}

// detourID names this migration's detour on this host.
func (m *outgoing) detourID() string { return m.plan.ID }

// call asks the destination's side of this migration.
func (m *outgoing) call(ctx context.Context, what string, request, answer any) error {
	return m.link.Call(ctx, http.MethodPost, urlOf(m.plan.ID, what), request, answer)
}

// tryFlip does what flip is for. The error is notNow where that is to be tried again.
func (m *outgoing) tryFlip(ctx context.Context) error {
	if m.work.answers == nil {
		m.askAhead()
	}
	m.work.spread = m.link.Spread()
	if err := m.comeToRest(ctx); err != nil {
		return err
	}
	if m.comesHome() {
		// Those packets reach the destination without us: it keeps them from now on.
		if err := m.rec.Timed("addresses come home", func() error { return m.call(ctx, "home", talk.Try{Epoch: m.plan.Epoch}, nil) }); err != nil {
			return err
		}
		begun := time.Now()
		m.awaitUnderway(ctx)
		m.rec.Took("await what was sent before", begun)
	}
	return m.rec.Timed("flip route", func() error { return m.a.detours.Flip(m.detourID(), true) })
}

// comeToRest has disks flushed, memory come to rest, and clients told, before packets are led away. Slow storage takes
// long: clients are not told before, and QEMU's own connections are not kept short meanwhile. So may an answer: memory
// comes to rest after it, as nothing of what the guest writes then goes.
func (m *outgoing) comeToRest(ctx context.Context) error {
	if err := m.work.mirrors.FlushShort(ctx); err != nil {
		return err
	}
	m.bringOwnToRest(ctx)
	if err := ctx.Err(); err != nil { // clients are not told in vain
		return err
	}
	told := m.tellClients(ctx)
	silent := m.answers(ctx)
	if silent == nil {
		m.settleMemory(ctx)
	}
	err := m.stillCopies(ctx)
	if err == nil && m.laneless() {
		err = errNoLane
	}
	if err == nil {
		err = silent
	}
	if err == nil {
		told()
	}
	return err
}

// awaitUnderway returns when what the destination had sent here, before it took an address
// home, has come out of its tunnel: an echo through the same tunnel comes behind it. The
// answer to our call does not: it takes another way, past the queues of a busy tunnel.
func (m *outgoing) awaitUnderway(ctx context.Context) {
	ctx, cancel := limits.Underway.On(ctx)
	defer cancel()
	for _, d := range m.a.detours.List(m.plan.Guest) {
		if len(d.Visiting) == 0 || d.Peer != m.plan.To && !slices.ContainsFunc(d.Addresses(), m.givenBack) {
			continue
		}
		if err := echo(ctx, d.Tunnel); err != nil {
			m.a.log.Warn("await what is on its way here", "migration", m.plan.ID, "tunnel", d.Tunnel.Name, "error", limits.Says(ctx, err))
		}
	}
}

// givenBack says that the destination is given addr back by its subnet agent, or by the address's home.
func (m *outgoing) givenBack(addr netip.Addr) bool {
	return slices.Contains(m.work.prepared.Home, addr)
}

const (
	drainQuiet = 2 * time.Millisecond  // the tap is empty for so long before the guest is stopped
	drainLimit = 60 * time.Millisecond // what a busy guest has not read by then goes after it
	drainLast  = 200 * time.Millisecond
)

// pause stops the guest, after it has taken what was on its way to it.
func (m *outgoing) pause(ctx context.Context) error {
	begun := time.Now()
	if t := m.guest.ActiveTap(); t != nil {
		m.drain(ctx, t)
	}
	m.rec.Took("drain tap", begun)
	m.guest.Machine().Courtesy(false) //nolint:errcheck // slower, not wrong
	memory, err := compare.MemoryOf(ctx, m.guest.Machine())
	if err != nil {
		return fmt.Errorf("pause guest %s: %w: %w", m.plan.Guest, vm.ErrUnasked, err)
	}
	m.lookAgain(ctx)
	m.beginStop()
	if err := m.stop(ctx); err != nil {
		m.work.mirrors.Cut() // QEMU may wait for a write that a dead path holds up
		return err
	}
	m.rec.Edit(func(r *record.Report) { r.Paused = m.rec.Now() })
	m.rec.Event(migration.SourceSuspend)
	if err := m.finishDisks(ctx); err != nil {
		return err
	}
	// The last of memory travels while the journal is written. It is no right: the
	// destination starts nothing before it has the release.
	m.allowSwitchover()
	m.letFinish()
	if err := m.noteMemory(ctx, memory); err != nil {
		return err
	}
	return m.stood()
}

// allowSwitchover lets the destination's acknowledgement pass, where QEMU waits for one.
func (m *outgoing) allowSwitchover() {
	if m.work.forward != nil && takesAck(m.work.facts) {
		m.work.forward.AllowSwitchover()
	}
}

// letFinish has QEMU look at the stopped guest's memory for the last time, once it comes to
// that, and send the rest.
func (m *outgoing) letFinish() {
	m.followMemory(func(life context.Context) {
		m.guest.Machine().ReleaseSwitchover(life) //nolint:errcheck // finishMemory asks again, and tells
	})
}

// drain returns when QEMU holds nothing that it would throw away at the stop. What the
// guest does not take in time goes after it. One frame that QEMU has read, and a full ring
// did not take, is nowhere to be seen (net_vm_change_state_handler drops it at the stop);
// QEMU reads on when that is in the ring, so it is given a frame that may be lost.
func (m *outgoing) drain(ctx context.Context, t *os.File) {
	err := hold.Drained(ctx, t, drainQuiet, drainLimit)
	if err != nil {
		m.a.log.Info("tap not drained; what is left is read out", "migration", m.plan.ID, "error", err)
		m.handLeftovers()
	}
	if err = hold.Mark(m.guest.Held().Taps[m.guest.Held().Active]); err == nil {
		err = hold.Drained(ctx, t, 0, drainLast)
	}
	if err != nil {
		m.a.log.Info("a packet that QEMU has read may be lost at the stop", "migration", m.plan.ID, "error", err)
	}
}

// unflip leads the guest's packets here again, at both ends.
func (m *outgoing) unflip(ctx context.Context) error {
	err := m.a.detours.Flip(m.detourID(), false)
	if m.comesHome() {
		away := limits.UndoAway.Do(ctx, func(ctx context.Context) error { return m.call(ctx, "away", talk.Try{Epoch: m.plan.Epoch}, nil) })
		if away != nil {
			m.keepAway()
		}
		err = errors.Join(err, away)
	}
	return err
}

// comesHome says whether the destination now sends an address here that comes back
// to it with the guest.
func (m *outgoing) comesHome() bool {
	return m.work.prepared.Coming || slices.ContainsFunc(m.plan.Held, func(a migration.Address) bool { return a.Home == m.plan.To })
}

// resume lets the guest run on here, after a destination's refusal or before any
// release. It tries again until the guest runs, its QEMU is gone, or its time is up.
func (m *outgoing) resume(ctx context.Context) error {
	_, paused := m.rec.Moments()
	m.rec.Edit(func(r *record.Report) { r.Paused = 0 })
	m.work.leaveMemory()
	m.work.stands.end()
	if !m.guest.Alive() {
		return fmt.Errorf("resume guest %s: its QEMU is gone", m.plan.Guest)
	}
	ask, cancel := limits.Resume.On(ctx)
	_, err := m.guest.Machine().Status(ask)
	cancel()
	if err != nil { // in its switchover it answers nobody until its stream takes more, or breaks
		m.cutStream(ctx)
	}
	for {
		was, err := goOn(ctx, m.guest.Machine(), false)
		if err == nil {
			if was != vm.Running || paused != 0 { // where it ran, an agent before this one had it run on
				m.rec.Moment(record.StepRanOn)
			}
			if was != vm.Running {
				m.noteStood(paused)
			}
			return nil
		}
		if !m.guest.Alive() || !sleep(ctx, repairPause) {
			return fmt.Errorf("resume guest %s: %w", m.plan.Guest, err)
		}
	}
}

// cutStream breaks the stream of a QEMU that waits for it: our data path, or QEMU's own connection, which nobody else has.
func (m *outgoing) cutStream(ctx context.Context) {
	m.endLanes()
	if !m.plan.Direct() {
		return
	}
	if err := m.guest.Machine().CancelMigration(ctx); err != nil {
		m.a.log.Info("cut QEMU's own stream", "migration", m.plan.ID, "error", err)
	}
}
