package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm"
)

// TestJournalStaysWhileItsGuestStands: a migration that was called off has ended for who waits, and its agent
// may stop; but its journal, and the guest, are its own until the guest runs on, under whichever agent, or is gone.
func TestJournalStaysWhileItsGuestStands(t *testing.T) {
	const id = "m-00000001"
	for name, gone := range map[string]bool{"answers the next agent": false, "is gone": true} {
		a := startedAgain(t)
		g, machine := haltedGuest(t, a, "web")
		machine.silent = 1 << 30
		path := journalOf(t, a, id, journalled(id, "paris", endedAt(migration.Pause)))
		stop := begin(a)
		waitFor(t, name+": it is told", func() bool { rep, ok := a.records.Report(id); return ok && rep.Ended != 0 })
		if rep, _ := a.records.Report(id); rep.Outcome != migration.Aborted || g.Migration() != id {
			t.Errorf("%s: %s, busy with %q", name, rep.Outcome, g.Migration())
		}
		if gone {
			close(machine.done)
		} else {
			stop() // returns soon, or the test's time is up
			if _, err := os.Stat(path); err != nil {
				t.Fatalf("nothing says that the guest is to run on: %v", err)
			}
			machine.asked.Store(0)
			machine.silent = 1 // answers the second time
			begin(a)
		}
		waitFor(t, name+": the journal goes", func() bool {
			ids, err := journal.Unfinished(a.config.StatePath("journal"))
			return err == nil && len(ids) == 0
		})
		if rep, ok, err := a.records.History(id); !ok || err != nil || rep.Outcome != migration.Aborted || g.Migration() != "" {
			t.Errorf("%s: history %v, %v, %s; busy with %q", name, ok, err, rep.Outcome, g.Migration())
		}
		if continued := machine.runs.Load() > 0; continued == gone {
			t.Errorf("%s: continued: %v", name, continued)
		}
	}
}

// begin has an agent begin, as far as its journals go; stop ends it.
func begin(a *Agent) (stop func()) {
	var end context.CancelFunc
	outer := a.ctx
	a.ctx, end = context.WithCancel(outer)
	a.resumeMigrations(a.ctx, nil)
	return func() { end(); a.actors.Wait(); a.ctx = outer }
}

// TestSilentGuestThatMayStandIsWaitedFor: an ended migration whose guest may stand still, and whose QEMU does
// not answer as the agent starts, is not done with.
func TestSilentGuestThatMayStandIsWaitedFor(t *testing.T) {
	a := startedAgain(t)
	h, end := silently(t, a)
	if err := statefile.Write(filepath.Join(a.config.StatePath("guests"), "web.json"), h); err != nil {
		t.Fatal(err)
	}
	path := journalOf(t, a, "m-00000001", journalled("m-00000001", "paris", endedAt(migration.Pause)))
	a.resumeMigrations(a.ctx, a.readopt(a.ctx))
	if _, err := os.Stat(path); err != nil || unreadOf(a, "m-00000001") == "" {
		t.Errorf("it is not waited for: %v", err)
	}
	end()
	waitFor(t, "it goes on", func() bool { _, ok, _ := a.records.History("m-00000001"); return ok })
}

// TestOutcomeWhereItsQEMUIsGone: a migration that came to nothing, and whose guest's QEMU is gone here, has failed
// where that was killed or lost with its host, and not where the guest ended by itself. Whichever it was, the guest is
// not under care any more.
func TestOutcomeWhereItsQEMUIsGone(t *testing.T) {
	ended := func(how vm.Exit) vm.Machine {
		machine := endedSo{gone{done: make(chan struct{})}, how}
		close(machine.done)
		return machine
	}
	for name, c := range map[string]struct {
		machine vm.Machine
		want    migration.Outcome
	}{
		"killed":         {ended(vm.Exit{Detail: "signal: killed"}), migration.Failed},
		"with its host":  {nil, migration.Failed},
		"it powered off": {ended(vm.Exit{Reason: "guest-shutdown"}), migration.Aborted},
	} {
		a := startedAgain(t)
		g, _ := haltedGuest(t, a, "web")
		g.RunsIn(c.machine)
		if c.machine == nil {
			g = underCare(t, a.guests, "web", guests.New(g.Held(), nil))
		}
		m := leaving(a)
		taken(t, g, m.plan.ID)
		var err error
		if m.log, err = journal.Create(a.config.StatePath("journal"), m.plan.ID); err != nil {
			t.Fatal(err)
		}
		m.guest, m.state = g, endedAt(migration.CopyMemory)
		a.closeSource(m)
		if rep, ok, err := a.records.History(m.plan.ID); !ok || err != nil || rep.Outcome != c.want {
			t.Errorf("%s: history %v, %v, %s, want %s", name, ok, err, rep.Outcome, c.want)
		}
		if left := found(a.guests, "web"); left != nil {
			t.Errorf("%s: it is under care still", name)
		}
	}
}
