package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu"
)

// What a QEMU that runs, or is gone, proves of a guest; see docs/ownership.md.

// errVanished says that the guest has run here, or may have, and its QEMU is gone.
var errVanished = errors.New("what it did here since the switch is lost; its state at the switch may still be at the source")

// resumed says whether a QEMU that is gone had said that its guest runs: it says so
// before the first instruction (vm_prepare_start in its system/cpus.c).
func resumed(events <-chan vm.Event) bool {
	for {
		select {
		case e, ok := <-events:
			if !ok || e.Name == "RESUME" {
				return ok
			}
		case <-time.After(time.Second): // the connection ends with the process
			return true // not known: not denied
		}
	}
}

// watchVanish says so when the QEMU of a guest that was started here is gone, before
// the source knows that the guest has landed.
func (m *incoming) watchVanish(ctx context.Context) {
	state, _ := m.await(ctx, func(s migration.Destination) bool { return s.Running() || s.Refused() })
	g := m.visible()
	if !state.Running() || g == nil {
		return
	}
	select {
	case <-g.Machine().Done():
	case <-ctx.Done():
		return
	}
	exit := g.Machine().Exit()
	if exit.Reason != "" || m.toldLost() || m.snapshot().Refused() {
		return // it ended by itself, or was to end
	}
	why := &migration.Problem{Code: migration.CodeGuestGone, Text: fmt.Sprintf(
		"guest %s: its QEMU on %s was killed or broke (%s) after the guest had run there; %v; see `godwit recover %s` on %s",
		m.plan.Guest, m.plan.To, exit.Detail, errVanished, m.plan.ID, m.plan.From)}
	m.rec.Note(why.Text)
	m.tell(ctx, migration.Input{Kind: migration.Vanish, Problem: why}) //nolint:errcheck // it ends with ctx
}

// goneForSure says that no QEMU is there, as opposed to one that does not answer.
func goneForSure(err error) bool {
	return errors.Is(err, qemu.ErrGone) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone)
}

// neverRan says that a QEMU that was started to wait still does. In every other state
// its guest runs, or has run.
func neverRan(s vm.Status) bool {
	switch s {
	case vm.Incoming, vm.Paused, vm.FinishMigrate, vm.PostMigrate, "prelaunch":
		return true
	}
	return false
}
