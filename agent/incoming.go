package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/compare"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/priority"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/clock"
	"godwit/migration"
)

// incoming is one migration at its destination. Its goroutine alone steps state;
// others read it under mu.
type incoming struct {
	a      *Agent
	offer  talk.Offer
	plan   migration.Plan
	rec    *record.Record
	log    *journal.File
	inbox  chan migration.Input
	work   *destinationWork
	ran    atomic.Bool       // the guest has run here, or may have
	order  uint64            // its place among those that were admitted; see owed
	before []migration.Input // what was said while its QEMU answered nobody

	leading sync.Mutex // addresses are led here, or away again, by one call at a time

	expects   atomic.Bool                       // the guest may have told its clients of its next addresses
	unled     atomic.Bool                       // the source has turned back, and had led no packet here
	doubtTold atomic.Bool                       // who follows its events was told that the guest vanished
	heard     atomic.Int64                      // when the source was last heard, ns since started
	broke     atomic.Pointer[migration.Problem] // why the guest did not arrive whole, before that is final; nil: it may

	stepping sync.Mutex // held while state changes, or is written down: the journal's last record is it

	mu    sync.Mutex
	shown *guests.Guest // see visible
	wake  chan struct{} // closed and replaced when state changes
	state migration.Destination
	over  error             // why nothing more will happen; nil: it may
	back  bool              // the source has turned back: the guest's packets come to it again
	tried *written.Handover // what the journal keeps of the handover; nil: nothing yet

	readyAt time.Time // release and bytes were here, and that was written down

	starving  atomic.Bool  // its QEMU answers nobody yet, as it waits for a page: see resumeStarving
	dir       string       // the guest's, also while its QEMU does not answer
	refilling sync.Mutex   // lanes are replaced by one at a time
	refills   [][]byte     // keys of the refills so far, the last of them; under refilling
	stalls    stallCount   // under the mutex of rec
	late      compare.Late // pages that followed the guest, which a lab compares
}

// silence is how long a prepared destination waits without a word from a source
// that does not answer (see watchSource) before it undoes, for good. The refusal is
// journalled: nothing can be released to it any more.
const silence = 10 * time.Minute

// run drives the machine to its end.
func (m *incoming) run(ctx context.Context, first migration.Input) {
	defer m.finish()
	m.noteHeard()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go m.watchSource(watch)
	go m.watchVanish(watch)
	var queue []migration.Input
	if first.Kind != "" {
		queue = append(queue, first)
	}
	queue = append(queue, m.before...)
	results := make(chan migration.Input, 1)
	busy, cancel := false, context.CancelFunc(func() {})
	defer func() { cancel() }()
	var pending []migration.Effect
	for {
		pending = append(pending, m.stepAll(watch, queue, cancel)...)
		queue = nil
		if !busy && len(pending) > 0 {
			effect := pending[0]
			pending, busy = pending[1:], true
			cancel = m.begin(ctx, effect, results)
		}
		if !busy && m.ended() {
			return
		}
		select {
		case in := <-results:
			if in.Kind == migration.Fault && ctx.Err() != nil {
				return // as the agent stops, which refuses nothing
			}
			busy = false
			cancel()
			queue = append(queue, in)
			if in.Kind == migration.Fault && !m.snapshot().Refused() { // repaired forward, but not in a hot loop
				if !sleep(ctx, 500*time.Millisecond) {
					return
				}
			}
		case in := <-m.inbox:
			queue = append(queue, in)
		case <-ctx.Done():
			return
		}
	}
}

// stepAll gives the machine what came in, and returns the effects to perform. It calls cancel where the one under way
// is to end.
func (m *incoming) stepAll(ctx context.Context, queue []migration.Input, cancel func()) (all []migration.Effect) {
	for _, in := range queue {
		effects, err := m.step(in)
		if err != nil {
			m.a.log.Warn("migration", "id", m.plan.ID, "error", err)
		}
		if errors.Is(err, errUnwritten) {
			m.repeatInput(ctx, in)
		}
		if m.startsInVain(in) {
			cancel() // what came of it decides, and then this
			m.repeatInput(ctx, in)
		}
		if all = append(all, effects...); slices.Contains(effects, migration.SendBack) {
			cancel() // what is under way is not wanted any more
		}
	}
	return all
}

// errUnwritten says that an input was not acted upon, as the journal did not take what it makes.
var errUnwritten = errors.New("it could not be journalled")

// repeatInput tells the machine once more, a moment later, what nobody else repeats: such as that the
// guest could not be started, which its source waits to hear.
func (m *incoming) repeatInput(ctx context.Context, in migration.Input) {
	switch in.Kind {
	case migration.Abort, migration.AskRefusal, migration.Released, migration.Disown:
		return // who asks for it asks on
	}
	go func() {
		if sleep(ctx, endAgain) {
			m.tell(ctx, in) //nolint:errcheck // it ends with ctx
		}
	}()
}

// begin performs effect in the background; the function it returns ends it early.
func (m *incoming) begin(ctx context.Context, effect migration.Effect, results chan<- migration.Input) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		results <- m.verdict(effect, m.perform(ctx, effect))
	}()
	return cancel
}

func sleep(ctx context.Context, d time.Duration) bool { return clock.Sleep(ctx, d) }

func (m *incoming) ended() bool {
	s := m.snapshot()
	return s.Landing == migration.Landed || s.Landing == migration.Gone
}

func (m *incoming) verdict(effect migration.Effect, err error) migration.Input {
	if err == nil {
		return migration.Input{Kind: migration.Done, Effect: effect}
	}
	m.a.rarely.warn(m.a.log, "effect", "migration", m.plan.ID, "effect", effect, "error", err)
	if errors.Is(err, errVanished) {
		return migration.Input{Kind: migration.Vanish, Problem: peer.AsProblem(err)}
	}
	return migration.Input{Kind: migration.Fault, Effect: effect, Problem: peer.AsProblem(err)}
}

// step advances the machine; see migration.Destination.MustSync for what must be on
// the disk before anybody hears of it.
func (m *incoming) step(in migration.Input) ([]migration.Effect, error) {
	m.stepping.Lock()
	defer m.stepping.Unlock()
	before := m.snapshot()
	next, effects, err := before.Step(in)
	if err != nil {
		return nil, err
	}
	if in.Kind == migration.Disown {
		m.ran.Store(true) // or may have
	}
	if in.Kind == migration.Abort && in.Epoch <= before.Epoch && !before.Running() && !before.Refused() {
		m.ran.Store(false) // its source never let go of it
	}
	if err := m.persist(before, next); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnwritten, err) // neither ready nor refused: the source hears nothing and asks on
	}
	if next.Vanished && !before.Vanished {
		m.a.metrics.Outcome(migration.AtDestination, migration.InDoubt, nil)
	}
	if next.Released && !before.Released {
		m.rec.Moment("release heard")
	}
	if next.Loaded && !before.Loaded {
		m.rec.Moment("memory complete")
	}
	m.mu.Lock()
	if next.Landing == migration.Starting && before.Landing != migration.Starting {
		m.readyAt = time.Now()
	}
	m.state = next
	m.a.precede(m.plan.ID, priority.AtDestination(next, m.pagesFollow(m.offer.Plan)))
	m.back = m.back || in.Kind == migration.Abort || in.Kind == migration.Lose // by then nothing is led here
	close(m.wake)
	m.wake = make(chan struct{})
	m.mu.Unlock()
	return effects, nil
}

// persist writes next down. Only what must be synced and could not is an error.
func (m *incoming) persist(before, next migration.Destination) error {
	sync := next.MustSync(before)
	write := func() error { return m.log.Append(m.journal(next), sync) }
	var err error
	if arrives := next.Released || next.Loaded; arrives && !before.Running() && !sync {
		err = m.rec.Timed("journal: "+arrivalWords(next), write)
	} else {
		err = write()
	}
	if err != nil && !sync {
		m.a.log.Warn("journal", "migration", m.plan.ID, "error", err)
		return nil
	}
	return err
}

// takeGuest keeps everybody from moving the guest on until it has landed: its addresses are
// being changed.
func (m *incoming) takeGuest() {
	if m.ended() {
		return
	}
	if err := m.work.guest.Take(m.plan.ID); err != nil {
		m.a.log.Error("take guest", "migration", m.plan.ID, "error", err)
	}
}

// arrivalWords name what the journal is told between the release and the start.
func arrivalWords(s migration.Destination) string {
	switch {
	case s.Running():
		return "it runs"
	case s.Landing == migration.Starting:
		return "start begins"
	case s.Loaded:
		return "memory complete"
	}
	return "release heard"
}

func (m *incoming) journal(state migration.Destination) written.Destination {
	if state.Running() || state.Vanished {
		m.ran.Store(true)
	}
	j := written.Destination{Side: "destination", State: state, Preparation: m.work.preparation, Ran: m.ran.Load(), Report: m.figures(state)}
	m.mu.Lock()
	j.Offer, j.Handover = m.offer, m.tried
	g := m.work.guest
	m.mu.Unlock()
	if g != nil {
		j.Held = g.Held()
	}
	return j
}

// setGuest is for the effects, whose the guest is; see visible.
func (m *incoming) setGuest(g *guests.Guest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work.guest = g
}

// show makes the guest visible, once its QEMU stands.
func (m *incoming) show(g *guests.Guest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown = g
}

// visible is the guest for who serves calls and streams, at any time: it has a QEMU, or is nil.
func (m *incoming) visible() *guests.Guest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown
}

func (m *incoming) snapshot() migration.Destination {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// await waits until state satisfies ok, or ctx ends.
func (m *incoming) await(ctx context.Context, ok func(migration.Destination) bool) (migration.Destination, error) {
	for {
		m.mu.Lock()
		state, wake, over := m.state, m.wake, m.over
		m.mu.Unlock()
		if ok(state) {
			return state, nil
		}
		if over != nil {
			return state, over
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// tell gives the machine an input.
func (m *incoming) tell(ctx context.Context, in migration.Input) error {
	select {
	case m.inbox <- in:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endWaits ends await of whoever waits for a state that will not come.
func (m *incoming) endWaits(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = why
	close(m.wake)
	m.wake = make(chan struct{})
}

func (m *incoming) finish() {
	defer m.a.recede(m.plan.ID)
	state := m.snapshot()
	m.endWaits(errors.New("the migration has ended here"))
	m.work.stop()
	if !m.ended() {
		m.log.Close() // the agent stops; the next one goes on
		return
	}
	if err := statefile.Remove(m.unsyncedFile()); err != nil {
		m.a.log.Warn("forget what could not be written", "migration", m.plan.ID, "error", err)
	}
	if m.work.guest != nil {
		m.work.guest.Drop(m.plan.ID) // before the source hears that it is over, and somebody moves it on
		m.a.guests.Settled(m.work.guest)
	}
	if state.Landing == migration.Landed {
		m.rec.Event(migration.MigrationDone)
		m.a.keepAsking(m.work.guest)
	} else {
		m.rec.Aborted(state.Problem)
	}
	m.rec.End(state.Outcome, state.Problem, time.Now())
	if err := m.endDirect(m.a.ctx); err != nil { // after the streams that it was for
		m.a.log.Warn("end what was made for memory", "migration", m.plan.ID, "error", err)
	}
	m.a.endJournal(m.log, m.plan.ID, func() error { return m.a.records.Write(m.plan.ID+"-destination.json", m.rec.Snapshot) })
	m.a.forgetIncoming(m.plan.ID)
}
