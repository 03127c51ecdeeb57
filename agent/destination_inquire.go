package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// A destination that waits for a guest hears its source all the time: bytes of
// memory, and calls. When it hears nothing it asks, over every path, what became of
// the migration: a source that turned back may not have been able to say so.

const (
	// inquireAfter is how long a waiting destination hears nothing before it asks.
	inquireAfter = 15 * time.Second
	// inquireInDoubt is between questions where only the source, or a person, can end a doubt.
	inquireInDoubt = 2 * time.Second
)

// started is when this process began; times since then do not jump.
var started = time.Now()

// noteHeard notes that the source is there.
func (m *incoming) noteHeard() { m.heard.Store(int64(time.Since(started))) }

// silentFor is how long nothing was heard of the source.
func (m *incoming) silentFor() time.Duration {
	return time.Since(started) - time.Duration(m.heard.Load())
}

// watchSource undoes, for good, what waits for a guest that will not come: when the
// source says so, or is silent for so long that a person must have given up; and what
// runs here when the source took the guest back. It returns when the guest was refused
// here, or ctx ends.
func (m *incoming) watchSource(ctx context.Context) {
	link := m.a.linkAgain(m.plan.From)
	pause := inquireInDoubt
	for sleep(ctx, pause) {
		state := m.snapshot()
		if state.Refused() {
			return
		}
		if pause = inquireAfter - m.silentFor(); pause > 0 && !state.Vanished {
			continue
		}
		if pause = inquireAfter; state.Vanished {
			pause = inquireInDoubt
		}
		ask, cancel := limits.Inquire.On(ctx)
		var answer talk.CourseAnswer
		err := limits.Says(ask, link.Call(ask, http.MethodGet, urlOf(m.plan.ID, "course"), nil, &answer))
		cancel()
		in := migration.Input{Kind: migration.Abort, Problem: m.givenUp(answer, err, m.silentFor())}
		if err == nil && answer.Lost && answer.Epoch <= m.plan.Epoch && m.misses(ctx) {
			in = migration.Input{Kind: migration.Lose, Problem: m.lostThere(answer.Problem)}
		}
		if in.Problem == nil {
			if err == nil {
				m.noteHeard()
			}
			continue
		}
		if answer.Epoch > m.plan.Epoch {
			in.Epoch = answer.Epoch
		}
		if m.tell(ctx, in) != nil {
			return
		}
	}
}

// givenUp says why the guest is refused, by what the source answered; nil while it
// may still come. Where it is not sure that the guest never ran here, only a source
// that says that it never let go counts.
func (m *incoming) givenUp(answer talk.CourseAnswer, err error, quiet time.Duration) *migration.Problem {
	var away *peer.Unreachable
	state := m.snapshot()
	switch {
	case err == nil && answer.Epoch > m.plan.Epoch:
		return &migration.Problem{Code: migration.CodeAsked, Text: fmt.Sprintf(
			"the source %s has the right to run guest %s, with epoch %d; here it was %d", m.plan.From, m.plan.Guest, answer.Epoch, m.plan.Epoch)}
	case state.Running():
		return nil
	case err == nil && answer.Course == talk.CourseOver && !answer.Released:
		why := "it turned back"
		if record.SaneProblem(answer.Problem); answer.Problem != nil && answer.Problem.Text != "" {
			why = answer.Problem.Text
		}
		return &migration.Problem{Code: migration.CodeAsked, Text: fmt.Sprintf("the source %s gave migration %s up: %s", m.plan.From, m.plan.ID, why)}
	case state.Vanished:
		return nil
	case err == nil && answer.Course == talk.CourseUnknown:
		return &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("the source %s knows nothing of migration %s", m.plan.From, m.plan.ID)}
	case err != nil && errors.As(err, &away) && quiet > silence:
		return &migration.Problem{Code: migration.CodeTimeout, Text: fmt.Sprintf("the source %s was silent for %v", m.plan.From, silence)}
	}
	return nil
}

// turnedLook is between two questions whether the source turned back.
const turnedLook = 100 * time.Millisecond

// turnedBack is why the source turned back, where it did by its own will: what it cuts off then does not arrive whole
// here, which is no reason. nil: it did not. It is asked for a moment, and not once it has let go, when it waits for
// this host.
func (m *incoming) turnedBack(ctx context.Context) *migration.Problem {
	link, _, err := m.a.link(m.plan.From)
	if err != nil {
		return nil //nolint:nilerr // there is nobody to ask
	}
	return m.turnedBackBy(ctx, link)
}

func (m *incoming) turnedBackBy(ctx context.Context, link *peer.Link) *migration.Problem {
	ctx, cancel := limits.TurnedBack.On(ctx)
	defer cancel()
	go func() {
		m.await(ctx, func(s migration.Destination) bool { return s.Released || s.Refused() }) //nolint:errcheck // it ends with ctx
		cancel()
	}()
	for {
		var answer talk.CourseAnswer
		if err := link.Call(ctx, http.MethodGet, urlOf(m.plan.ID, "course"), nil, &answer); err != nil {
			return nil
		}
		why := answer.Problem
		switch {
		case answer.Course == talk.CourseUnderWay && !answer.Released && sleep(ctx, turnedLook):
			continue
		case answer.Course != talk.CourseOver || why == nil || !slices.Contains(ownWill, why.Code):
			return nil
		}
		record.SaneProblem(why)
		return why
	}
}

// ownWill are the codes of what a source turns back for whatever its destination does.
var ownWill = []migration.Code{migration.CodeAsked, migration.CodeBudget, migration.CodeTimeout, migration.CodeHook, migration.CodeGuestGone, migration.CodeAgent}

// course is how it stands, of one moment.
func (m *outgoing) course() talk.CourseAnswer {
	s := m.snapshot()
	if !s.Over() {
		return talk.CourseAnswer{Course: talk.CourseUnderWay, Released: s.Released(), Heard: s.Heard(), Epoch: s.Epoch}
	}
	why := cmp.Or(m.rec.Snapshot().Problem, s.Problem)
	answer := talk.CourseAnswer{Course: talk.CourseOver, Released: s.Released(), Epoch: s.Epoch, Problem: why, Lost: s.Lost()}
	if !m.asking.Load() {
		answer.Keeps = new(!m.runsThere.Load())
	}
	return answer
}

// peerCourse tells a destination what became of a migration that leaves this host.
func (a *Agent) peerCourse(r *http.Request) (any, error) {
	id, caller := r.PathValue("id"), peer.Caller(r)
	if !migration.ValidID(id) {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("migration id %q: not one", id)}
	}
	a.mu.Lock()
	m, rec := a.outgoing[id], a.records.Find(id)
	a.mu.Unlock()
	if m != nil && m.plan.To == caller {
		return m.course(), nil
	}
	var rep record.Report
	known := rec != nil
	if known {
		rep = rec.Snapshot()
	} else {
		var err error
		if rep, known, err = a.records.Ended(id + ".json"); err != nil {
			a.log.Warn("history", "migration", id, "error", err)
			known = true // what it was is not known
		}
	}
	if known && rep.From == a.config.Host && rep.To == caller && rep.Ended != 0 {
		return talk.CourseAnswer{
			Course: talk.CourseOver, Released: rep.Outcome == migration.Completed, Epoch: rep.Epoch, Problem: rep.Problem, Lost: rep.Outcome == migration.Failed,
			Keeps: new(!rep.RunsThere),
		}, nil
	}
	if _, err := os.Stat(a.config.StatePath("journal", id+".journal")); known || !errors.Is(err, os.ErrNotExist) {
		return talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true}, nil // not to be told from one that let go
	}
	return talk.CourseAnswer{Course: talk.CourseUnknown}, nil
}

// heardStream notes each byte that comes from the source.
type heardStream struct {
	*peer.Stream
	hear func()
}

func (s heardStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n > 0 {
		s.hear()
	}
	return n, err
}
