package agent

import (
	"os"
	"strings"
	"testing"

	"godwit/migration"
)

// TestGuestThatItsOwnerStartedAgain: where a guest that was adopted was started again while no agent ran, as when its
// host had lost its power, the QEMU that is found is not the one that the migration had. From the switch on the guest
// may have been let go, which the journal has lost: this one does not run then, and no page of it is sent for one that
// the guest misses. Before the switch it is the guest, as is the one that was there all the while.
func TestGuestThatItsOwnerStartedAgain(t *testing.T) {
	same := processOf(os.Getpid())
	if same == "" || processOf(-1) != "" {
		t.Fatalf("processes: %q, %q", same, processOf(-1))
	}
	other := strings.Replace(same, "begun at ", "begun at 1", 1)
	for name, c := range map[string]struct {
		at   migration.Effect
		was  string
		lost bool
	}{
		"flip, another": {migration.Flip, other, true}, "pause, another": {migration.Pause, other, true},
		"let go, another": {migration.Release, other, true}, "landing, another": {migration.AwaitLanding, other, true},
		"copy, another": {migration.CopyMemory, other, false}, "pause, the same": {migration.Pause, same, false}, "pause, not known": {migration.Pause, "", false},
		"let go, the same": {migration.Release, same, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			_, machine := haltedGuest(t, a, "web")
			machine.runs.Store(1) // it has booted
			j := journalled("m-00000001", "berlin", sourceDoing(t, c.at))
			j.QEMU = c.was
			journalOf(t, a, "m-00000001", j)
			a.resumeMigrations(a.ctx, nil)
			if stands := c.lost || c.at == migration.Release; !stands {
				a.actors.Wait()
				if rep, _, _ := a.records.History("m-00000001"); rep.Outcome != migration.Aborted || machine.runs.Load() == 0 {
					t.Errorf("it came to %s; runs: %v", rep.Outcome, machine.runs.Load() > 0)
				}
				return
			}
			a.mu.Lock()
			m := a.outgoing["m-00000001"]
			a.mu.Unlock()
			waitFor(t, "it stands still", func() bool { return machine.runs.Load() == 0 })
			waitFor(t, "it was let go", func() bool { return m.snapshot().Released() })
			if m.qemuGone() != c.lost {
				t.Errorf("its pages are gone: %v, want %v", m.qemuGone(), c.lost)
			}
		})
	}
}
