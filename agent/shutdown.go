package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"godwit/agent/ends"
	"godwit/agent/limits"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

var problemShutdown = &migration.Problem{Code: migration.CodeAsked, Text: "the agent is shutting its host down"}

// apiShutdown ends everything on this host: migrations turn back, guests and
// detours end, but guests that were adopted here run on without care. The host is as
// it was before the agent first ran.
func (a *Agent) apiShutdown(r *http.Request) (any, error) {
	ctx := context.WithoutCancel(r.Context()) // nobody asks a second time
	a.mu.Lock()
	moving, coming := slices.Collect(maps.Values(a.outgoing)), slices.Collect(maps.Values(a.incoming))
	a.mu.Unlock()
	var err error
	for _, m := range moving {
		m.abort(problemShutdown) //nolint:errcheck // what is past its switch ends with the other side
	}
	for _, m := range coming {
		err = errors.Join(err, m.endUnstarted(ctx))
	}
	for _, g := range a.guests.All() {
		if g.Held().Description.QMP != "" { // it ran before we came
			err = errors.Join(err, a.letGo(g))
			continue
		}
		err = errors.Join(err, a.stopGuest(ctx, g))
	}
	for _, d := range a.detours.List("") {
		err = errors.Join(err, a.detours.Remove(ctx, d.ID))
	}
	found, ferr := tunnel.Found(ctx, ends.Dir(a.config))
	err = errors.Join(err, ferr)
	for _, t := range found {
		err = errors.Join(err, tunnel.Down(ctx, ends.Dir(a.config), t.Name))
	}
	return nil, err
}

// endUnstarted has what waits here be refused, and undone, by its own goroutine, which may be about to start it. What
// may have run already is given up, and its disks are kept.
func (m *incoming) endUnstarted(ctx context.Context) error {
	state := m.snapshot()
	if state.Running() && !state.Vanished || m.ended() {
		return nil
	}
	in := migration.Input{Kind: migration.AskRefusal, Problem: problemShutdown}
	if state.Vanished || state.Landing == migration.Starting || m.starving.Load() {
		in.Kind = migration.Disown
	}
	ctx, cancel := limits.SendBack.On(ctx)
	defer cancel()
	err := m.tell(ctx, in)
	if err == nil {
		_, err = m.await(ctx, func(s migration.Destination) bool { return s.Running() && !s.Vanished || s.Landing == migration.Gone })
	}
	if err != nil {
		err = fmt.Errorf("end migration %s: %w", m.plan.ID, limits.Says(ctx, err))
	}
	return err
}
