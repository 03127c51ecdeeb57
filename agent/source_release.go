package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/hold"
	"godwit/netstate/mptcp"
	"godwit/policy"
	"godwit/vm"
)

// This file is the release: what the source does and asks once it lets go.

// letGo hands the right to run the guest over. The release and the last of memory, which
// has been on its way since the pause, travel at the same time; the destination starts
// when it has both.
func (m *outgoing) letGo(ctx context.Context) error {
	answers, followed := make(chan error, 1), make(chan struct{})
	var answer talk.ReleaseAnswer
	go func() {
		begun := time.Now()
		err := m.askRelease(ctx, &answer, followed)
		if err == nil {
			m.rec.Took("release → runs", begun)
		}
		answers <- err
	}()
	begun := time.Now()
	m.handLeftovers() // beside the release: a slow tunnel takes its time
	if !m.state.InDoubt {
		m.rec.Took("hand over: send what is left in the tap", begun)
	}
	if m.guest.Machine() != nil && !m.lost { // else askRelease sees to it that nobody waits for memory
		m.followMemory(func(life context.Context) { m.finishMemory(life, ctx) })
	}
	close(followed)
	if err := <-answers; err != nil {
		return err
	}
	if m.work.endTicks != nil {
		last := m.work.endTicks()
		m.rec.Edit(func(r *record.Report) { r.LastTick = last })
	}
	resumed := answer.Resumed
	if resumed != 0 { // else its agent ended before it had written that down
		resumed -= int64(m.work.skew)
	}
	m.rec.Add(record.Event{Kind: "event", Name: migration.TargetResume, At: resumed, Host: m.plan.To})
	m.rec.Edit(func(r *record.Report) {
		r.Resumed = resumed
		if r.Outcome == migration.InDoubt {
			r.Outcome = ""
		}
	})
	return nil
}

// handLeftovers sends what is left in the tap of the guest, which is paused or about to
// be, after it.
func (m *outgoing) handLeftovers() {
	into := m.tunnelHere()
	if into == "" {
		return
	}
	t := m.guest.ActiveTap() // the spare NIC's has broadcasts only
	if t == nil {
		return
	}
	frames, err := hold.ReadLeft(t)
	if err != nil {
		m.a.log.Warn("read what is left in a tap", "migration", m.plan.ID, "error", err)
	}
	if len(frames) == 0 {
		return
	}
	sent, err := hold.Resend(frames, into)
	if err != nil {
		m.a.log.Warn("send what was left in a tap", "migration", m.plan.ID, "error", err)
	}
	if sent > 0 {
		m.rec.Note(fmt.Sprintf("%d packets were left in the source's tap and went after the guest", sent))
	}
}

// tunnelHere is this end of the tunnel to the destination; "" where there is none. The guest stands
// still: nobody who writes detours to the disk is waited for.
func (m *outgoing) tunnelHere() string {
	if m.work.tunnel == "" {
		if d, ok := m.a.detours.Get(m.detourID()); ok { // an earlier agent made it
			m.work.tunnel = d.Tunnel.Name
		}
	}
	return m.work.tunnel
}

// askRelease repeats the release until the destination says running or declined. Any
// other answer ends doubt too: it has the release, and waits for the rest of the guest. followed is closed when
// the last of memory is followed.
func (m *outgoing) askRelease(ctx context.Context, answer *talk.ReleaseAnswer, followed <-chan struct{}) error {
	what := "release"
	if m.state.InDoubt || m.lost {
		what = "release?wait=50ms" // whatever the answer, soon
	}
	if m.state.InDoubt {
		m.countWire()
		m.rec.Edit(func(r *record.Report) { r.Outcome = migration.InDoubt })
	}
	idle := policy.Standstill{Patience: m.a.config.Patience}
	for {
		if m.resendPages(ctx, followed) {
			idle = policy.Standstill{Patience: idle.Patience}
		}
		asked := time.Now()
		attempt, cancel := limits.Release.On(ctx)
		err := limits.Says(attempt, m.link.CallEverywhere(attempt, m.work.spread, http.MethodPost, urlOf(m.plan.ID, what), m.plan, answer))
		cancel()
		answer.Sane()
		m.seeVanished(answer.Vanished)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("%w: %w", errSilent, err) // nothing but its own word gives the guest back

		case answer.State == "running":
			m.compareClocks(answer.Now, asked, time.Now())
			return nil
		case answer.State == "declined":
			return m.refused(answer.Problem)
		case answer.Vanished != "":
			return fmt.Errorf("%w: %s", errSilent, answer.Vanished)
		case what != "release":
			what = "release"
			m.rec.Note(fmt.Sprintf("%s answers: it has the release, and waits for the rest of the guest", m.plan.To))
			m.rec.Edit(func(r *record.Report) { r.Outcome = "" })
			if m.lost && !m.couldRunSoon(ctx) { // there is nobody to send the rest
				m.askRefusalSoon(ctx, "the guest's QEMU was lost at the source")
			}
		case idle.See(time.Now(), m.lastMoved()) && !m.couldRunSoon(ctx):
			m.askRefusalSoon(ctx, fmt.Sprintf("%s has the release, and not a byte moved there in %v", m.plan.To, idle.Patience))
			idle = policy.Standstill{Patience: idle.Patience}
		default:
			sleep(ctx, repairPause-time.Since(asked)) // who has it waits before it answers
		}
	}
}

// lastMoved changes with what moves of the last of memory. QEMU itself is not asked: in its
// switchover it may answer nobody.
func (m *outgoing) lastMoved() int64 {
	if to, ok := talk.QEMUAddress(m.work.prepared.Memory); ok && m.plan.Direct() {
		waits, err := mptcp.Waiting(to)
		if err != nil {
			return time.Now().UnixNano() // not known: not denied
		}
		return waits
	}
	return m.moved(vm.Progress{})
}

// followMemory has follow see to the last of memory until the source's QEMU is no longer needed, in place of what did so
// before: the destination may well say that the guest runs before QEMU has heard that it was the last byte.
func (m *outgoing) followMemory(follow func(life context.Context)) {
	m.work.leaveMemory()
	life, end := context.WithCancel(m.a.ctx)
	m.work.endMemory = end
	go func() {
		defer end()
		follow(life)
	}()
}

// finishMemory waits for the last byte and keeps QEMU's own figures, until life ends.
// Where the transfer breaks while the release is under way, the destination is asked for
// its refusal.
func (m *outgoing) finishMemory(life, release context.Context) {
	if !m.guest.Alive() { // found so by an agent that was started again
		m.askRefusal(release, "its QEMU at the source is gone")
		return
	}
	if err := m.guest.Machine().ReleaseSwitchover(life); err != nil && life.Err() == nil {
		m.a.log.Warn("release switchover", "migration", m.plan.ID, "error", err)
	}
	p, err := m.guest.Machine().AwaitMigration(life)
	for errors.Is(err, context.DeadlineExceeded) && life.Err() == nil && release.Err() == nil && m.guest.Alive() {
		// QEMU answers nobody for as long as it sends its last pages: who asks for the release sees whether they move
		p, err = m.guest.Machine().AwaitMigration(life)
	}
	if err != nil {
		if life.Err() == nil && release.Err() == nil && !m.couldRun(release) && !m.work.pagesResent.Load() {
			m.askRefusal(release, err.Error())
		}
		return
	}
	if m.work.qemuSent != nil {
		m.work.qemuSent.Store(p.Transferred)
	}
	m.keepMemory(p)
}

// askRefusal asks a destination that cannot get all of the guest's memory to say that
// it will not start it. One that has all of it, or runs the guest, goes on.
func (m *outgoing) askRefusal(ctx context.Context, cause string) {
	why := &migration.Problem{Code: migration.CodeHypervisor, Text: "memory did not get through: " + cause}
	m.rec.NoteOnce(why.Text) // in doubt it is asked again and again
	if err := m.call(ctx, "abort", talk.Undo{Problem: *why, Epoch: m.snapshot().Epoch, Released: true}, nil); err != nil {
		m.a.log.Warn("ask for a refusal", "migration", m.plan.ID, "error", err)
	}
}

// askRefusalSoon is askRefusal for as long as one try of the release; see couldRunSoon.
func (m *outgoing) askRefusalSoon(ctx context.Context, cause string) {
	ctx, cancel := limits.Release.On(ctx)
	defer cancel()
	m.askRefusal(ctx, cause)
}

// askAbort asks the destination to undo, for good. One that cannot be reached is
// asked on in the background; it also asks by itself when it hears nothing. So nobody
// waits for it to know that the guest runs here.
func (m *outgoing) askAbort(ctx context.Context) error {
	defer m.work.farewells.Wait()
	why := talk.Undo{Epoch: m.state.Epoch, Lost: m.state.Lost(), Unled: !m.state.LedAway()}
	if m.state.Problem != nil {
		why.Problem = *m.state.Problem
	}
	limit := limits.UndoThere
	switch {
	case m.state.Lost(): // nothing here waits for it, and a QEMU that waits for a page is slow to end
		limit = limits.SendBack
	case m.state.Again: // only when all is undone there; the guest runs here, and whoever calls it off is answered at once
		limit = limits.SendBack
	case m.state.LedAway():
		limit = limits.UndoHeld
	}
	err := limit.Do(ctx, func(ctx context.Context) error { return m.call(ctx, "abort", why, nil) })
	var away *peer.Unreachable
	if errors.As(err, &away) && m.a.ctx.Err() == nil {
		m.rec.Note(fmt.Sprintf("%s does not answer: it is asked on to undo, and undoes by itself when it hears of the end", m.plan.To))
		m.a.actors.Go(func() { m.abortLater(why) })
	}
	return err
}

// abortLater goes on asking for as long as a destination waits for its source.
func (m *outgoing) abortLater(why talk.Undo) {
	ctx, cancel := context.WithTimeout(m.a.ctx, silence)
	defer cancel()
	err := m.call(ctx, "abort", why, nil)
	m.a.log.Info("asked the destination to undo", "migration", m.plan.ID, "to", m.plan.To, "error", err)
}

// refused is the destination's refusal, for the reason that it gives, if any.
func (m *outgoing) refused(why *migration.Problem) error {
	if why == nil || why.Text == "" {
		why = &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("host %s refused guest %s, and did not say why", m.plan.To, m.plan.Guest)}
	}
	return errors.Join(errDeclined, why)
}
