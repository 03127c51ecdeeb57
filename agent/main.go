package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/priority"
	"godwit/internal/child"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

func init() { child.Register("agent", childMain) }

func childMain(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: godwit agent --config FILE")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := Main(ctx, args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "godwit agent:", err)
		return 1
	}
	return 0
}

// Main runs an agent by a configuration file until ctx ends.
func Main(ctx context.Context, path string) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	a, err := New(c, log)
	if err != nil {
		return err
	}
	priority.RunBesideCopying()
	return a.Run(ctx, nil)
}

// apiShutdown ends everything on this host: migrations turn back, guests and
// detours end, but guests that were adopted here run on without care. The host is as
// it was before the agent first ran.
func (a *Agent) apiShutdown(r *http.Request) (any, error) {
	ctx := context.WithoutCancel(r.Context()) // nobody asks a second time
	a.mu.Lock()
	moving := make([]*outgoing, 0, len(a.outgoing))
	for _, m := range a.outgoing {
		moving = append(moving, m)
	}
	coming := make([]*incoming, 0, len(a.incoming))
	for _, m := range a.incoming {
		coming = append(coming, m)
	}
	a.mu.Unlock()
	var err error
	for _, m := range moving {
		m.abort(problemShutdown) //nolint:errcheck // what is past its switch ends with the other side
	}
	for _, m := range coming {
		err = errors.Join(err, m.endUnstarted(ctx))
	}
	for _, g := range a.guests.all() {
		if g.Held.Description.QMP != "" { // it ran before we came
			err = errors.Join(err, a.letGo(g))
			continue
		}
		err = errors.Join(err, a.stopGuest(ctx, g))
	}
	for _, d := range a.detours.List("") {
		err = errors.Join(err, a.detours.Remove(ctx, d.ID))
	}
	found, ferr := tunnel.Found(ctx, a.tunnelDir())
	err = errors.Join(err, ferr)
	for _, t := range found {
		err = errors.Join(err, tunnel.Down(ctx, a.tunnelDir(), t.Name))
	}
	return nil, err
}

// endUnstarted has what waits here be refused, and undone, by its own goroutine, which may be about to start it. What may have
// run already is given up, and its disks are kept.
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

// apiProcesses names the QEMU process of every guest here, also of those that wait.
func (a *Agent) apiProcesses(*http.Request) (any, error) {
	out := map[string]int{}
	a.mu.Lock()
	for _, m := range a.incoming {
		if g := m.visible(); g != nil {
			out[m.plan.Guest] = g.Machine.PID()
		}
	}
	a.mu.Unlock()
	for _, g := range a.guests.all() {
		if g.Machine != nil {
			out[g.name()] = g.Machine.PID()
		}
	}
	return out, nil
}
