package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/agent/limits"
	"godwit/vm"
)

// A guest may end in a QEMU that stays (-no-shutdown; -action shutdown=pause or panic=pause). It is under care for as
// long as that is there, since somebody who is to look into it may; but nothing in it answers any more, and the handover
// does not wait for it.

// errStood says that the guest has ended, and its QEMU stays.
var errStood = errors.New("the guest has ended, and its QEMU stays")

// stoodAs says how it ended; "": it has not, or, with an error, that is not known.
func stoodAs(ctx context.Context, machine vm.Machine) (string, error) {
	ctx, cancel := limits.Status.On(ctx)
	defer cancel()
	status, err := machine.Status(ctx)
	switch {
	case err != nil:
		return "", err
	case status == vm.Shutdown:
		return "was shut down", nil
	case status == vm.Panicked:
		return "panicked", nil
	case status == vm.InternalError:
		return "broke", nil
	}
	return "", nil
}

// whileRuns ends ctx, because of errStood, once the guest has ended so.
func (m *incoming) whileRuns(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	machine := m.work.guest.Machine()
	if machine == nil {
		return ctx, func() { cancel(nil) }
	}
	events := machine.Events(ctx)
	go func() {
		for {
			how, err := stoodAs(ctx, machine)
			if how != "" {
				cancel(errStood)
				return
			}
			var again <-chan time.Time
			if err != nil { // it may have stopped before
				again = time.After(latePause)
			}
			for look := false; !look; {
				select {
				case e, ok := <-events:
					if !ok {
						return
					}
					look = e.Name == "STOP"
				case <-again:
					look = true
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// noteStays tells of it, once.
func (m *incoming) noteStays(ctx context.Context) {
	if machine := m.work.guest.Machine(); machine != nil {
		if how, _ := stoodAs(ctx, machine); how != "" { // where that is not known nothing is told
			m.rec.NoteOnce(fmt.Sprintf("guest %s %s on %s before the migration was over; its QEMU stays", m.plan.Guest, how, m.plan.To))
		}
	}
}
