package lab

import (
	"context"
	"time"

	"godwit/lab/report"
	"godwit/migration"
)

// callOffTime bounds what the end of a run waits for migrations that it calls off.
const callOffTime = 5 * time.Second

// lastWordTime bounds the questions what became of those that have no outcome then.
const lastWordTime = 3 * time.Second

// callOff ends the migrations that are under way when the run ends, also by an
// interruption, as a person would who wants no more of it: what can be undone is undone, and
// each has its true outcome. Of what has none by then, both hosts are asked how it stands.
func (r *run) callOff() {
	moves := r.movesNow()
	ctx, cancel := context.WithTimeout(context.Background(), callOffTime)
	defer cancel()
	for _, m := range moves {
		select {
		case <-m.answered:
		case <-ctx.Done():
		}
		if m.ended() || !m.began() {
			continue
		}
		if err := r.w.agents[m.from].client.Abort(ctx, m.id); err != nil { // it has been handed over, or nobody answers
			r.remark(m, "the run ends: "+err.Error())
		}
	}
	for _, m := range moves {
		select {
		case <-m.done:
		case <-ctx.Done():
		}
	}
	last, stop := context.WithTimeout(context.Background(), lastWordTime)
	defer stop()
	for _, m := range moves {
		if !m.ended() && m.began() {
			r.lastWord(last, m)
		}
	}
}

// lastWord asks both hosts how a migration stands that has no outcome.
func (r *run) lastWord(ctx context.Context, m *move) {
	if rep, err := r.w.agents[m.from].client.Report(ctx, m.id); err == nil {
		m.set(&rep)
	}
	to := r.resolve(m)
	if rep, err := r.w.agents[to].client.Report(ctx, m.id); err == nil {
		if rep.Resumed != 0 { // its host is asked for what reached it
			r.w.moved(m.guest, to)
		}
		m.mu.Lock()
		m.there = &rep
		m.mu.Unlock()
	}
	m.mu.Lock()
	doubt := m.report != nil && m.report.Outcome == migration.InDoubt
	m.mu.Unlock()
	if doubt { // a guest that vanished there runs there no more, though it did
		if all, err := r.w.agents[m.from].client.Doubts(ctx, m.id); err == nil && len(all) == 1 && all[0].Proven {
			m.judge(report.InDoubt, "", all[0].There)
		}
	}
}
