package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"godwit/internal/clock"
	"godwit/lab/scenario"
	"godwit/netstate/netns"
)

// kill ends an agent, or a guest's QEMU at one side of its migration.
func (r *run) kill(ctx context.Context, step *scenario.Step) error {
	k := step.Kill
	if k.QEMU != "" {
		return r.killQEMU(ctx, step)
	}
	var errs []error
	for _, name := range r.w.scenario.Hosts(k.Agent) {
		a := r.w.agents[name]
		errs = append(errs, a.kill())
		if k.Restart && a.awaits() {
			r.background(func() { r.trouble(step, a.startAgain(ctx, k.RestartAfter)) })
		}
	}
	return errors.Join(errs...)
}

// killQEMU ends a guest's QEMU. That of the destination is waited for as long as the migration
// lasts that makes it; that of the source, once the migration has ended it, needs no killing: one of a guest that is
// about to move again is the source's of that. A step that names no side is about the source's; but by the clock, while
// no migration is under way, about the one that the guest has.
func (r *run) killQEMU(ctx context.Context, step *scenario.Step) error {
	k, m := step.Kill, r.about(step, step.Kill.QEMU)
	side := k.Side
	if side == "" && (m != nil || step.At.Triggered()) {
		side = "source"
	}
	host := r.w.agentOf(k.QEMU)
	switch {
	case m == nil && side == "destination" && r.asks(k.QEMU): // its turn will come
		r.background(func() {
			if m := r.await(ctx, k.QEMU); m != nil {
				r.trouble(step, r.killOnceThere(ctx, step, r.w.agents[r.resolve(m)], m))
			} else {
				r.neverCame(step)
			}
		})
		return nil
	case m == nil && side == "destination" && !r.had(k.QEMU):
		return fmt.Errorf("no migration of %s has been asked for, so it has no destination", k.QEMU)
	case m == nil && side != "" && !r.asks(k.QEMU) && r.goneAt(k.QEMU, side):
		r.remark(r.lastMove(k.QEMU), step.String()+": it has ended already")
		return nil
	case m != nil && side == "destination":
		host = r.w.agents[r.resolve(m)]
	case m != nil:
		host = r.w.agents[m.from]
	}
	pid, err := host.qemuPID(ctx, k.QEMU)
	switch {
	case err == nil:
		return r.killProcess(ctx, step, host, pid)
	case m == nil || !errors.Is(err, errNoQEMU):
		return err
	case side == "source":
		r.remark(m, step.String()+": it has ended already")
		return nil
	}
	r.background(func() { r.trouble(step, r.killOnceThere(ctx, step, host, m)) })
	return nil
}

// goneAt says whether the QEMU at that side of a guest's last migration, which is over, is gone: the guest has
// but one.
func (r *run) goneAt(name, side string) bool {
	here := r.w.agentOf(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	var last *move
	for _, m := range r.moves {
		if m.guest == name && m.ended() {
			last = m
		}
	}
	return last != nil && (side == "source") == (here != r.w.agents[last.from])
}

// lookForQEMU is how often a QEMU is looked for that is not there yet.
const lookForQEMU = 10 * time.Millisecond

// killOnceThere ends the destination's QEMU of a migration as soon as there is one.
func (r *run) killOnceThere(ctx context.Context, step *scenario.Step, host *hostAgent, m *move) error {
	for clock.Sleep(ctx, lookForQEMU) {
		over := m.ended()
		pid, err := host.qemuPID(ctx, step.Kill.QEMU)
		switch {
		case err == nil:
			return r.killProcess(ctx, step, host, pid)
		case over || !errors.Is(err, errNoQEMU):
			return err
		}
	}
	return ctx.Err()
}

// killProcess ends the process of the QEMU that a step is about, and has its guest boot again
// where the step asks for that.
func (r *run) killProcess(ctx context.Context, step *scenario.Step, host *hostAgent, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil || !step.Kill.Restart {
		return err
	}
	over := r.toBoot(step.Kill.QEMU, host)
	r.background(func() {
		defer over()
		r.trouble(step, r.bootAgain(ctx, step.Kill, host))
	})
	return nil
}

// errNoQEMU says that a host has no process of a guest.
var errNoQEMU = errors.New("no QEMU")

// qemuPID finds the process of a guest on this host, also one that waits, and also while the
// agent is dead, which takes nothing with it.
func (h *hostAgent) qemuPID(ctx context.Context, name string) (int, error) {
	var pids map[string]int
	if err := h.client.Do(ctx, "GET", "/v1/processes", nil, &pids); ctx.Err() != nil {
		return 0, err
	} else if err != nil {
		pids = qemusIn(netns.Processes(h.host.Namespace))
	}
	pid, ok := pids[name]
	if !ok {
		return 0, fmt.Errorf("%w of %s on %s", errNoQEMU, name, h.host.Name)
	}
	return pid, nil
}

// qemusIn finds those of the processes that are guests', by the guest's name in their command line.
func qemusIn(pids []int) map[string]int {
	out := map[string]int{}
	for _, pid := range pids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		words := strings.Split(string(line), "\x00")
		if i := slices.Index(words, "-name"); i >= 0 && i+1 < len(words) {
			name, _, _ := strings.Cut(words[i+1], ",")
			out[strings.TrimPrefix(name, "guest=")] = pid
		}
	}
	return out
}
