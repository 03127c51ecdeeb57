package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/migration"
)

// incoming is one migration at its destination. Its goroutine alone steps state;
// others read it under mu.
type incoming struct {
	a     *Agent
	offer Offer
	plan  migration.Plan
	rec   *Record
	log   *journal.File
	inbox chan migration.Input
	work  *destinationWork

	heard  atomic.Int64 // when the source was last heard, ns since started
	unsure bool         // QEMU is gone, and an earlier agent may have started the guest; fixed before run

	mu    sync.Mutex
	wake  chan struct{} // closed and replaced when state changes
	state migration.Destination
	over  bool // nothing more will happen
}

// destinationJournal is the state that survives the agent.
type destinationJournal struct {
	Side        string                `json:"side"` // "destination"
	Offer       Offer                 `json:"offer"`
	Preparation Preparation           `json:"preparation"`
	State       migration.Destination `json:"state"`
	Held        Held                  `json:"held"`
}

// silence is how long a prepared destination waits without a word from a source
// that does not answer (see watchSource) before it undoes, for good. The refusal is
// journalled: nothing can be released to it any more.
const silence = 10 * time.Minute

// run drives the machine to its end.
func (m *incoming) run(ctx context.Context, first migration.Input) {
	defer m.finish()
	m.hear()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go m.watchSource(watch)
	var queue []migration.Input
	if first.Kind != "" {
		queue = append(queue, first)
	}
	results := make(chan migration.Input, 1)
	busy := false
	var pending []migration.Effect
	for {
		for len(queue) > 0 {
			effects, err := m.step(queue[0])
			if err != nil {
				m.a.log.Warn("migration", "id", m.plan.ID, "error", err)
			}
			queue = queue[1:]
			pending = append(pending, effects...)
		}
		if !busy && len(pending) > 0 {
			effect := pending[0]
			pending, busy = pending[1:], true
			go func() { results <- m.verdict(effect, m.perform(ctx, effect)) }()
		}
		if !busy && m.ended() {
			return
		}
		select {
		case in := <-results:
			busy = false
			queue = append(queue, in)
			if in.Kind == migration.Fault { // repaired forward, but not in a hot loop
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

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *incoming) ended() bool {
	s := m.snapshot()
	return s.Landing == migration.Landed || s.Landing == migration.Gone
}

func (m *incoming) verdict(effect migration.Effect, err error) migration.Input {
	if err == nil {
		return migration.Input{Kind: migration.Done, Effect: effect}
	}
	m.a.log.Warn("effect", "migration", m.plan.ID, "effect", effect, "error", err)
	return migration.Input{Kind: migration.Fault, Effect: effect, Problem: peer.AsProblem(err)}
}

// step advances the machine. A refusal and the readiness to start are on the disk
// before anybody hears of them; starting itself needs no sync: after a crash the
// running QEMU says what is true.
func (m *incoming) step(in migration.Input) ([]migration.Effect, error) {
	next, effects, err := m.snapshot().Step(in)
	if err != nil {
		return nil, err
	}
	sync := next.Landing == migration.Waiting && !next.Released || next.Landing == migration.Declining
	if err := m.log.Append(m.journal(next), sync); err != nil && sync {
		return nil, err // neither ready nor refused: the source hears nothing and asks on
	}
	before := m.snapshot()
	if next.Released && !before.Released {
		m.rec.moment("release heard")
	}
	if next.Loaded && !before.Loaded {
		m.rec.moment("memory complete")
	}
	m.mu.Lock()
	m.state = next
	close(m.wake)
	m.wake = make(chan struct{})
	m.mu.Unlock()
	return effects, nil
}

func (m *incoming) journal(state migration.Destination) destinationJournal {
	j := destinationJournal{Side: "destination", Offer: m.offer, State: state, Preparation: m.work.preparation}
	if m.work.guest != nil {
		j.Held = m.work.guest.Held
	}
	return j
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
		if over {
			return state, errors.New("the migration has ended here")
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

func (m *incoming) finish() {
	m.mu.Lock()
	state := m.state
	m.over = true
	close(m.wake)
	m.wake = make(chan struct{})
	m.mu.Unlock()
	m.work.stop()
	if !m.ended() {
		m.log.Close() // the agent stops; the next one goes on
		return
	}
	outcome := migration.Aborted
	if state.Landing == migration.Landed {
		outcome = migration.Completed
		m.rec.event(migration.MigrationDone)
	} else {
		m.rec.aborted(state.Problem)
	}
	m.rec.end(outcome, state.Problem, time.Now())
	if err := writeJSON(m.a.config.dir("history", m.plan.ID+"-destination.json"), m.rec.snapshot()); err != nil {
		m.a.log.Error("write history", "migration", m.plan.ID, "error", err)
	}
	if err := m.log.Remove(); err != nil {
		m.a.log.Error("end journal", "migration", m.plan.ID, "error", err)
	}
	m.a.forgetIncoming(m.plan.ID)
}
