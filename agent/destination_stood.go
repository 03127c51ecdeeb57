package agent

import (
	"context"
	"errors"
	"fmt"

	"godwit/agent/limits"
	"godwit/vm"
)

// A guest may end in a QEMU that stays (-no-shutdown; -action shutdown=pause or panic=pause). It is under care for as
// long as that is there, since somebody who is to look into it may; but nothing in it answers any more, and the handover
// does not wait for it.

// errStood says that the guest has ended, and its QEMU stays.
var errStood = errors.New("the guest has ended, and its QEMU stays")

// stoodAs says how it ended; "": it has not, or that is not known.
func stoodAs(ctx context.Context, machine vm.Machine) string {
	ctx, cancel := limits.Status.On(ctx)
	defer cancel()
	status, err := machine.Status(ctx)
	switch {
	case err != nil:
		return ""
	case status == vm.Shutdown:
		return "was shut down"
	case status == vm.Panicked:
		return "panicked"
	case status == vm.InternalError:
		return "broke"
	}
	return ""
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
			if stoodAs(ctx, machine) != "" {
				cancel(errStood)
				return
			}
			for stopped := false; !stopped; {
				select {
				case e, ok := <-events:
					if !ok {
						return
					}
					stopped = e.Name == "STOP"
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
		if how := stoodAs(ctx, machine); how != "" {
			m.rec.NoteOnce(fmt.Sprintf("guest %s %s on %s before the migration was over; its QEMU stays", m.plan.Guest, how, m.plan.To))
		}
	}
}
