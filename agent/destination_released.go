package agent

import (
	"context"
	"net/http"
	"time"

	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// releaseWait is how long an answer to a release waits for the guest to run.
const releaseWait = 3 * time.Second

// peerRelease hears that the source has let go. It answers when the guest runs or
// was refused, or that it waits for bytes.
func (a *Agent) peerRelease(r *http.Request) (any, error) {
	var plan migration.Plan
	if err := peer.Decode(r, &plan); err != nil {
		return nil, err
	}
	m, err := a.findIncoming(r)
	if err != nil {
		return a.endedAnswer(r, plan.Epoch)
	}
	if err := m.tell(r.Context(), migration.Input{Kind: migration.Released, Epoch: plan.Epoch}); err != nil {
		return nil, err
	}
	if hold := m.holdStream(); hold != nil && takesAck(m.work.preparation.Facts) {
		hold.AllowSwitchover()
	}
	if lanes := m.lanes(); lanes != nil {
		lanes.Hurry()
	}
	if g := m.visible(); g != nil {
		g.Machine().Courtesy(false) //nolint:errcheck // slower, not wrong
	}
	wait := releaseWait
	if d, err := time.ParseDuration(r.URL.Query().Get("wait")); err == nil {
		wait = min(max(d, 0), releaseWait)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	state, _ := m.await(ctx, func(s migration.Destination) bool { return s.Running() || s.Declines() || s.Vanished && s.Released })
	return m.releaseAnswer(state), nil
}

func (m *incoming) releaseAnswer(state migration.Destination) talk.ReleaseAnswer {
	switch {
	case state.Vanished:
		return talk.ReleaseAnswer{State: "waiting", Vanished: m.vanishedWords(state)}
	case state.Running():
		return runningAnswer(m.rec)
	case state.Declines():
		return talk.ReleaseAnswer{State: "declined", Problem: state.Problem}
	}
	return talk.ReleaseAnswer{State: "waiting"}
}

// endedAnswer is the answer for a migration that is over here.
func (a *Agent) endedAnswer(r *http.Request, epoch uint64) (any, error) {
	rec, err := a.endedFrom(r, epoch)
	if err != nil {
		return nil, err
	}
	rep := rec.Snapshot()
	if rep.Outcome == migration.Completed {
		return runningAnswer(rec), nil
	}
	return talk.ReleaseAnswer{State: "declined", Problem: rep.Problem}, nil
}

// runningAnswer says that the guest runs here, or did; see compareClocks.
func runningAnswer(rec *record.Record) talk.ReleaseAnswer {
	return talk.ReleaseAnswer{State: "running", Resumed: rec.Snapshot().Resumed, Now: rec.Now()}
}

// peerAbort undoes, for good, unless the guest was started; then it says so.
func (a *Agent) peerAbort(r *http.Request) (any, error) {
	var ask talk.Undo
	if err := peer.Decode(r, &ask); err != nil {
		return nil, err
	}
	record.SaneProblem(&ask.Problem)
	if ask.Text == "" {
		ask.Problem = migration.Problem{Code: migration.CodeAsked, Text: "the source turned back"}
	}
	m, err := a.findIncoming(r)
	if err != nil {
		a.rememberAborted(peer.Caller(r), r.PathValue("id"), ask.Epoch)
		return a.supersede(r, ask)
	}
	if ask.Unled && ask.Epoch == m.plan.Epoch { // and not of an earlier try, that came late
		m.unled.Store(true)
	}
	in := migration.Input{Kind: migration.Abort, Epoch: ask.Epoch, Problem: &ask.Problem}
	lost := ask.Lost && ask.Epoch <= m.plan.Epoch && m.misses(r.Context())
	switch {
	case lost:
		in.Kind = migration.Lose
	case ask.Released && ask.Epoch <= m.plan.Epoch:
		in.Kind = migration.AskRefusal
		ask.Problem = m.unloaded(r.Context(), ask.Problem)
	}
	if err := m.tell(r.Context(), in); err != nil {
		return nil, err
	}
	taken, asked := ask.Epoch > m.plan.Epoch, in.Kind == migration.AskRefusal
	state, err := m.await(r.Context(), func(s migration.Destination) bool {
		// Who asks for a refusal turns back when it hears one, and what waits here is sent back after that
		// (awaitTurnedBack).
		return s.Running() && !taken && !lost || s.Landing == migration.Gone || asked && (s.Vanished || s.Declines())
	})
	if err != nil && !state.Refused() {
		return nil, err
	}
	return m.releaseAnswer(state), nil
}

// unloadedSoon is how long QEMU here has to say why it did not load the guest, when its source has heard that it did
// not: the guest stands still meanwhile.
const unloadedSoon = 200 * time.Millisecond

// unloaded is what the source's QEMU has to say of memory that was not loaded, which is no more than that its sibling
// failed, followed by why that is, with that code; as it is where nothing is known to be wrong with what came.
func (m *incoming) unloaded(ctx context.Context, said migration.Problem) migration.Problem {
	if why := m.whyNotWhole(ctx, unloadedSoon); why != nil {
		return migration.Problem{Code: why.Code, Text: said.Text + "; " + why.Text}
	}
	return said
}

// whyNotWhole is why the guest did not arrive whole here, where that is known within soon; nil: it is not.
func (m *incoming) whyNotWhole(ctx context.Context, soon time.Duration) *migration.Problem {
	for until := time.Now().Add(soon); ; {
		why := m.broke.Load()
		if why != nil || time.Now().After(until) || !sleep(ctx, soon/20) {
			return why
		}
	}
}

// rememberAborted remembers a migration whose abort overtook its prepare, which TCP may still
// bring after a cut: it must find nothing to begin. An agent that is started anew has
// forgotten, and asks the source what became of it (watchSource).
func (a *Agent) rememberAborted(source, id string, epoch uint64) {
	if !migration.ValidID(id) {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for old, e := range a.abortedEarly {
		if now.Sub(e.at) > silence {
			delete(a.abortedEarly, old)
		}
	}
	if len(a.abortedEarly) < earlyMost {
		a.abortedEarly[source+" "+id] = earlyAbort{now, epoch}
	}
}

// earlyAbort is when a migration was given up, and which right with it.
type earlyAbort struct {
	at    time.Time
	epoch uint64
}

// earlyMost bounds what rememberAborted remembers.
const earlyMost = 1000
