package agent

import (
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/migration"
)

// TestNoJournalNoMigration: who asks for a migration that cannot be written down hears of which guest, on which host,
// and what to do.
func TestNoJournalNoMigration(t *testing.T) {
	a := startedAgain(t)
	g, _ := haltedGuest(t, a, "web")
	if err := os.RemoveAll(a.config.StatePath("journal")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", a.config.StatePath("journal")); err != nil { // nothing can be made in it
		t.Fatal(err)
	}
	_, err := a.newOutgoing(migration.Request{Guest: "web", To: "paris"})
	agenttest.Refused(t, "no directory", err, migration.CodeInternal, "guest web", "host "+a.config.Host, a.config.State, "that can be written")
	if g.Migration() != "" {
		t.Errorf("the guest is busy with %s", g.Migration())
	}
	full := fmt.Errorf("create journal: %w", &fs.PathError{Op: "write", Path: "x", Err: unix.ENOSPC})
	agenttest.Refused(t, "full", a.noJournal("web", full), migration.CodeCapacity, "guest web", "make room in state")
}
