package lab

import (
	"errors"
	"slices"
	"sync"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/migration"
)

// move is one migration of the run as the lab follows it.
type move struct {
	guest string
	from  string // host
	to    string
	step  *scenario.Migrate
	asked time.Time
	over  time.Time // when it had its outcome; of one that has none, the run's end

	answered chan struct{} // closed when the request was answered
	id       string        // read it after that; "": refused

	mu         sync.Mutex
	phase      migration.Phase
	started    map[migration.Phase]time.Time // first; steps wait for that
	begun      []phaseBegin                  // in order, of all tries
	events     []record.Event
	report     *record.Report
	early      *record.Report     // what the source told when it started; nil: nothing was heard
	there      *record.Report     // what the destination told at the end, of one without an outcome
	refusal    *migration.Problem // of a request that never began
	judged     report.Outcome     // by the lab, where nobody is left to tell; and why
	judgedWhy  string
	judgedCode migration.Code // of that, for programs; "": none fits
	stood      bool           // the guest was seen to stand still at its source, where nobody was left to tell
	progress   record.CopyProgress
	wire       []wireSample
	pages      []pageLook
	remarks    []string // the lab's own, beside the agents' notes
	done       chan struct{}

	looks []edgeLook // in its handover; of run.mu
	links linkWindow
	cpu   time.Duration // of both hosts, while it took place
	left  string        // file of the memory that its source kept; "": none
}

// phaseBegin is when a phase began.
type phaseBegin struct {
	phase migration.Phase
	at    time.Time
}

type wireSample struct {
	at    time.Time
	bytes map[string]int64
}

// ended says whether the move has its outcome.
func (m *move) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// newMove is a migration that is due now.
func (r *run) newMove(step *scenario.Migrate) *move {
	m := &move{
		guest: step.Guest, from: r.w.agentOf(step.Guest).host.Name, to: step.To, step: step, asked: time.Now(),
		started: map[migration.Phase]time.Time{}, done: make(chan struct{}), answered: make(chan struct{}),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moves = append(r.moves, m)
	return m
}

// movesNow are the migrations so far; the list stays what it is.
func (r *run) movesNow() []*move {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moves
}

// takeBack forgets a migration that was never asked for: the run has ended. Who looks at the list
// meanwhile keeps the one it has.
func (r *run) takeBack(m *move) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moves = slices.DeleteFunc(slices.Clone(r.moves), func(other *move) bool { return other == m })
	close(m.answered)
	close(m.done)
}

func (m *move) refuse(err error) {
	var problem *migration.Problem
	if !errors.As(err, &problem) {
		problem = &migration.Problem{Code: migration.CodePeer, Text: err.Error()}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusal = problem
}

// began says whether the migration has been answered with its id.
func (m *move) began() bool {
	select {
	case <-m.answered:
		return m.id != ""
	default:
		return false
	}
}

func (m *move) set(rep *record.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.report != nil && m.report.Survival != nil {
		rep.Survival = m.report.Survival // of the move's end, not of what the end of the run did to it
	}
	m.report = rep
}
