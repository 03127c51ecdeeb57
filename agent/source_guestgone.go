package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/logs"
	"godwit/internal/oneline"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

const (
	// exitWait is how long a QEMU whose guest has ended may take to be gone.
	exitWait = 300 * time.Millisecond
	// closedWait is the same for one that has closed its monitor already.
	closedWait = 3 * time.Second
	// exitLook is how often it is looked at.
	exitLook = 20 * time.Millisecond
)

// gone explains err by the guest's own end: nil while its QEMU lives.
func (m *outgoing) gone(err error) *migration.Problem {
	if m.guest.Machine() == nil || !endedBy(m.guest.Machine(), err) {
		return nil
	}
	exit := m.guest.Machine().Exit()
	if exit.Reason == "" {
		return goneProblem(m.plan.Guest, "ended (its QEMU was killed or broke: "+exit.Detail+")")
	}
	return goneProblem(m.plan.Guest, endWords(m.guest, exit.Reason))
}

// endedBy says whether a QEMU that err came of is gone, or is in a moment.
func endedBy(machine vm.Machine, err error) bool {
	wait := exitWait
	if errors.Is(err, qmp.ErrClosed) {
		wait = closedWait
	}
	select {
	case <-machine.Done():
		return true
	case <-time.After(wait):
		return false
	}
}

// awaitExit waits until the QEMU of a guest that has ended is gone too, so that the guest is in nobody's
// care when the outcome is told. It tells of the end before it goes; that of a guest which was only reset runs on.
func (m *outgoing) awaitExit() {
	ctx, cancel := limits.Exit.On(m.a.ctx)
	defer cancel()
	for m.guest.Alive() {
		if status, err := m.guest.Machine().Status(ctx); err == nil && status == vm.Running || !sleep(ctx, exitLook) {
			return
		}
	}
}

func goneProblem(guest, what string) *migration.Problem {
	return &migration.Problem{Code: migration.CodeGuestGone, Text: fmt.Sprintf("guest %s %s during the migration", guest, what)}
}

// endWords are how a guest ended, by QEMU's reason. Guests of the lab's image are
// reset by their kernel when it panics; their console tells the two apart.
func endWords(g *guests.Guest, reason string) string {
	if reason == "guest-reset" && panicked(filepath.Join(g.Held().Dir, "serial.log")) {
		return "panicked"
	}
	return shutdownWords(reason)
}

// panicked looks for a kernel's last words at the end of a console's log.
func panicked(path string) bool {
	data, err := logs.End(path, 16<<10)
	return err == nil && strings.Contains(string(data), "Kernel panic")
}

func shutdownWords(reason string) string {
	switch reason {
	case "guest-shutdown":
		return "powered off"
	case "guest-reset":
		return "rebooted"
	case "guest-panic":
		return "panicked"
	}
	return "was shut down (" + reason + ")"
}

// watchGuest turns back when the guest powers off, reboots, panics or dies.
func (m *outgoing) watchGuest() {
	if m.guest.Machine() == nil {
		return // it was lost: what needs it says so
	}
	ctx, cancel := context.WithCancel(m.a.ctx)
	m.work.stopWatch = cancel
	events := m.guest.Machine().Events(ctx)
	done := m.guest.Machine().Done()
	tell := func(what string) {
		if m.snapshot().Released() {
			return
		}
		if err := m.abort(goneProblem(m.plan.Guest, what)); err != nil {
			m.a.log.Info("guest's end", "migration", m.plan.ID, "error", err)
		}
	}
	go func() {
		for {
			select {
			case e, ok := <-events:
				if !ok {
					events = nil
					continue
				}
				switch e.Name {
				case "SHUTDOWN":
					tell(endWords(m.guest, oneline.Of(e.Reason())))
				case "RESET":
					tell("was reset")
				case "GUEST_PANICKED":
					tell("panicked")
				}
			case <-done:
				tell("ended (its QEMU is gone)")
				return
			case <-ctx.Done():
				return
			}
		}
	}()
}
