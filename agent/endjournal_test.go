package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/journal"
	"godwit/migration"
)

// TestJournalEndsLater: while the history cannot be written the journal stays; when it can,
// the journal goes.
func TestJournalEndsLater(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &Agent{config: &Config{Host: "paris", State: dir}, log: slog.New(slog.DiscardHandler), ctx: ctx}
	blocked := filepath.Join(dir, "history")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	log, err := journal.Create(a.config.dir("journal"), "m-00000001")
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(sourceJournal{Side: "source"}, false); err != nil {
		t.Fatal(err)
	}
	a.endJournal(log, "m-00000001", "m-00000001.json", Report{ID: "m-00000001", Outcome: migration.Aborted})
	unfinished := func() int {
		ids, err := journal.Unfinished(a.config.dir("journal"))
		if err != nil {
			t.Fatal(err)
		}
		return len(ids)
	}
	if unfinished() != 1 {
		t.Error("the journal is gone, and the history has nothing")
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); unfinished() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the journal stays although the history can be written")
		}
	}
	if rep, ok, _ := a.history("m-00000001"); !ok || rep.Outcome != migration.Aborted {
		t.Errorf("history: %+v, %v", rep, ok)
	}
	a.actors.Wait()
}
