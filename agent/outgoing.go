package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/priority"
	"godwit/agent/record"
	"godwit/agent/uplinks"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/vm"
)

// outgoing is one migration at its source. Its goroutine alone touches state.
type outgoing struct {
	a     *Agent
	guest *guests.Guest
	link  *peer.Link
	rec   *record.Record
	plan  migration.Plan
	state migration.Source
	log   *journal.File
	inbox chan migration.Input
	work  *sourceWork // what the effects made and still hold

	kept json.RawMessage // of the report, as the journal has it; see figures

	found bool // an earlier agent began it
	aside bool // it has ended, and has nothing to do with its guest any more; see guestLeft
	over  bool // an earlier agent ended it, and what it came to is all that is left to write down
	lost  bool // an agent that was started again found the guest's QEMU gone, for sure, or another in its place

	runsThere atomic.Bool // though the journal has it here: see ifItRuns
	asking    atomic.Bool // whether it does, of one that was found

	process string // which one the guest's QEMU is, see processOf; "": not known

	untaken   *Taken           // what its other host is to be told, and could not be written down yet; nil: nothing
	calledOff *migration.Input // an abort that came while it is undone to begin again
	nextMode  string           // mode of its next try: as it was asked for, or hybrid (turnsHybrid); "": the plan's

	carry int64 // bit/s that the paths carried when its last try was given up; 0: none was

	bandwidth uplinks.Limit
	limited   int64  // bit/s, as the journal has it
	itself    string // the plan's transfer where QEMU sends by itself (direct), else ""; for others to read: the check changes the plan

	told atomic.Pointer[migration.Source] // state, for others to read; see snapshot

	words sync.Map // persons' words, by their Problem: whether each was taken, or why it came to nothing; see settleWord
}

// snapshot is the state for everybody but its own goroutine.
func (m *outgoing) snapshot() migration.Source {
	if s := m.told.Load(); s != nil {
		return *s
	}
	return migration.Source{}
}

// run drives the machine from its first input to its end.
func (m *outgoing) run(ctx context.Context, first migration.Input) {
	defer m.finish()
	pending := first
	for {
		effects, err := m.step(pending)
		if err != nil {
			m.drop(pending, m.whyNot(err))
			m.a.log.Error("migration", "id", m.plan.ID, "error", err)
			if effects = []migration.Effect{m.state.Doing()}; !sleep(ctx, repairPause) { // what was ended for it goes on
				return
			}
			if pending.Kind == migration.Restarted { // what was found stays so, and comes first
				continue
			}
		}
		if m.state.Course == migration.Ended {
			return
		}
		if len(effects) == 0 {
			if pending, err = m.next(ctx); err != nil {
				return
			}
			continue
		}
		var stop bool
		begun := time.Now()
		if pending, stop = m.performUnlessTold(ctx, effects[0]); stop {
			return
		}
		if m.calledOff != nil {
			if _, err := m.step(*m.calledOff); err != nil {
				m.a.log.Warn("migration", "id", m.plan.ID, "error", err)
			}
			m.calledOff = nil
		}
		if pending.Kind == migration.Fault && m.state.Released() && !sleep(ctx, repairPause) {
			return
		}
		// Who says at once that nobody there can say more, such as for hours, is not asked at once again.
		if pending.Kind == migration.NoAnswer && !sleep(ctx, repairPause-time.Since(begun)) {
			return
		}
	}
}

// repairPause is between tries of what must be repaired forward.
const repairPause = 300 * time.Millisecond

// next waits for what somebody says.
func (m *outgoing) next(ctx context.Context) (migration.Input, error) {
	for {
		select {
		case in := <-m.inbox:
			if m.heeds(in) {
				return in, nil
			}
		case <-ctx.Done():
			return migration.Input{}, ctx.Err()
		}
	}
}

// performUnlessTold performs effect and returns what came of it; an abort or the guest's end
// ends the effect first, and is returned in its stead.
func (m *outgoing) performUnlessTold(ctx context.Context, effect migration.Effect) (in migration.Input, stop bool) {
	effectCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- m.perform(effectCtx, effect) }()
	for {
		select {
		case err := <-result:
			return m.verdict(effect, err), false
		case in := <-m.inbox:
			switch {
			case !m.heeds(in):
				continue
			case (in.Kind == migration.TakeBack || in.Kind == migration.Lose) && m.state.Released():
			case in.Kind == migration.Abort && m.state.Again: // it turns back already, and that is where it ends
				m.callOff(in)
				if effect == migration.UndoPrepareThere { // which takes longer only to begin again
					time.AfterFunc(limits.UndoThere.For, cancel)
				}
				continue
			case m.state.Released() || m.state.Course != migration.Forward:
				m.drop(in, tooLateToTake)
				continue // too late to turn back, or turning back already
			}
			cancel()
			in.Stood = errors.Is(<-result, vm.ErrUnasked) // it was ended, what else came of it is not wanted
			return in, false
		case <-ctx.Done():
			cancel()
			<-result //nolint:errcheck // it was ended, what came of it is not wanted
			return migration.Input{}, true
		}
	}
}

// callOff keeps for the end of what is being undone that a migration which would begin again does not, and
// writes it down: an agent that is killed before does not begin again either.
func (m *outgoing) callOff(in migration.Input) {
	m.calledOff = &in
	next, _, err := m.state.Step(in)
	if err == nil {
		err = m.persist(next, true)
	}
	if err != nil {
		m.a.log.Warn("write down that it was called off", "migration", m.plan.ID, "error", err)
	}
}

// errDeclined is the destination's word that it will not start the guest.
var errDeclined = errors.New("destination declined")

// errSilent says that the destination has not answered for the release.
var errSilent = errors.New("no answer for the release")

// verdict turns an effect's error into the machine's input.
func (m *outgoing) verdict(effect migration.Effect, err error) migration.Input {
	if err == nil {
		return migration.Input{Kind: migration.Done, Effect: effect}
	}
	problem := peer.AsProblem(err)
	switch {
	case errors.Is(err, errSilent):
		return migration.Input{Kind: migration.NoAnswer, Effect: effect, Problem: problem}
	case errors.Is(err, errDeclined):
		return migration.Input{Kind: migration.Declined, Effect: effect, Problem: problem}
	}
	m.a.rarely.warn(m.a.log, "effect", "migration", m.plan.ID, "effect", effect, "error", err)
	if !m.state.Released() && m.state.Course == migration.Forward && m.state.Phase() != migration.Check {
		if gone := m.gone(err); gone != nil {
			problem = gone
		}
	}
	return migration.Input{Kind: migration.Fault, Effect: effect, Problem: problem, Again: m.turnsHybrid(problem), Stood: errors.Is(err, vm.ErrUnasked)}
}

// step advances the machine and journals the new state before it counts. A state that cannot be journalled is not
// taken: before the release that turns back, after it the journal is tried again with the next step; so it is where an
// agent before this one may have let go. Turning back is taken all the same: no guest stays paused for a disk that
// takes no record, and the destination's refusal is on its own.
func (m *outgoing) step(in migration.Input) ([]migration.Effect, error) {
	next, effects, err := m.state.Step(in)
	if err != nil {
		return nil, err
	}
	sync := next.MustSync(m.state)
	err = m.persist(next, sync)
	if err != nil && next.Taken && !m.state.Taken {
		return nil, err // not taken back, and asked on
	}
	if err != nil && next.MustWrite(m.state) && next.Course == migration.Forward {
		if in.Kind == migration.Restarted {
			return nil, err
		}
		fault := migration.Input{Kind: migration.Fault, Problem: &migration.Problem{Code: migration.CodeInternal, Text: err.Error()}}
		if next, effects, err = m.state.Step(fault); err != nil {
			return nil, err
		}
	}
	if err != nil {
		m.a.rarely.warn(m.a.log, "journal", "migration", m.plan.ID, "error", err)
	}
	m.setState(next)
	return effects, nil
}

// persist writes state; see migration.Source.MustSync for what must be on the disk.
func (m *outgoing) persist(state migration.Source, sync bool) error {
	kept := m.figures(state)
	write := func() error { return m.writeDown(state, kept, sync) }
	if state.Course == migration.Forward && state.Phase() == migration.Switch {
		return m.rec.Timed("journal: "+journalWords(state), write)
	}
	return write()
}

// writeDown writes a record of state, with what is kept of the report.
func (m *outgoing) writeDown(state migration.Source, kept json.RawMessage, sync bool) error {
	plan := m.plan
	plan.Bandwidth = m.bandwidth.Bits() // as it is limited now
	m.limited = plan.Bandwidth
	begun, paused := m.rec.Moments()
	return m.log.Append(written.Source{
		Side: "source", Plan: plan, State: state, Begun: begun, Doing: state.Reached(), Skew: m.work.skew, Paused: paused, Report: kept,
		Needed: m.work.needed.Load(), Coming: m.work.prepared.Coming, Home: m.work.prepared.Home, QEMU: m.process, Next: m.nextMode,
		RunsThere: m.runsThere.Load(),
	}, sync)
}

// journalWords name what the journal is told within the switch.
func journalWords(s migration.Source) string {
	if s.Released() {
		return "let go"
	}
	return string(s.Doing()) + " begins"
}

// setState makes next the state and tells watchers what changed.
func (m *outgoing) setState(next migration.Source) {
	now := time.Now()
	before := m.state
	m.state = next
	m.told.Store(&next)
	early, _ := m.rec.PagesFollow()
	m.a.precede(m.plan.ID, priority.AtSource(next, early, false))
	m.claimWay(before, next)
	if next.Epoch != before.Epoch && before.Epoch != 0 {
		m.newEpoch(next)
	}
	if next.Course == migration.Forward && next.Phase() != before.Phase() {
		m.rec.Enter(next.Phase(), now)
	}
	if next.Course == migration.Undoing && before.Course == migration.Forward {
		m.rec.Note(turnWords(next) + m.whyTurned(next))
	}
	if next.InDoubt && !before.InDoubt {
		m.rec.Note(fmt.Sprintf("in doubt: the guest was let go, and whether it runs on %s is not known; memory and disk are kept, asking on; see `godwit recover %s`", m.plan.To, m.plan.ID))
		m.inDoubt()
	}
}

// inDoubt has the report say so, and counts it where it did not yet.
func (m *outgoing) inDoubt() {
	if m.rec.Snapshot().Outcome == migration.InDoubt {
		return
	}
	m.countWire() // the last count may be of before the guest was stopped
	m.rec.Edit(func(r *record.Report) { r.Outcome = migration.InDoubt })
	m.a.metrics.Outcome(migration.AtSource, migration.InDoubt, nil)
}

// turnWords say before its reason what becomes of a migration that does not go on.
func turnWords(s migration.Source) string {
	if s.Lost() {
		return "nothing is left to move: "
	}
	return "turning back: "
}

// finish writes the outcome to the history and lets the guest go on.
func (m *outgoing) finish() {
	defer m.a.recede(m.plan.ID)
	defer m.a.rightOfWay.Leave(m.plan.ID)
	if m.state.Course != migration.Ended { // the agent stops; the journal stays for the next
		m.log.Close() //nolint:errcheck // each record was written when it counted
		return
	}
	m.work.release()
	m.noteOverrun()
	m.a.closeSource(m)
}

// abort asks for the way back. Its error says why it cannot be had any more; without one it may come too late all
// the same, see abortFor.
func (m *outgoing) abort(why *migration.Problem) error {
	if m.snapshot().Released() {
		return m.tooLate()
	}
	select {
	case m.inbox <- migration.Input{Kind: migration.Abort, Problem: why}:
		return nil
	case <-time.After(time.Second):
		return &migration.Problem{Code: migration.CodeBusy, Text: "abort " + m.plan.ID + ": it is being undone already"}
	}
}

func (m *outgoing) tooLate() error {
	return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
		"abort %s: the guest has been handed over to %s, it can only go forward", m.plan.ID, m.plan.To)}
}

// abortLook is between two looks at what an abort has come to.
const abortLook = 5 * time.Millisecond

// abortFor is abort for who is to hear whether the migration turns back: it may be letting go just now.
// What takes longer to end than ctx, or a few seconds, turns back when it has.
func (m *outgoing) abortFor(ctx context.Context, why *migration.Problem) error {
	if err := m.abort(why); err != nil {
		return err
	}
	ctx, cancel := limits.Aborted.On(ctx)
	defer cancel()
	for now := m.snapshot(); !now.Over(); now = m.snapshot() {
		if now.Released() {
			return m.tooLate()
		}
		if !sleep(ctx, abortLook) {
			break
		}
	}
	return nil
}
