package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/agent/hook"
	"godwit/agent/record"
	"godwit/migration"
)

// TestHookFailsAfterTheEnd: that a hook of a migration's end has failed is a note of the migration for the next agent,
// too; and so is what hooks of that one say.
func TestHookFailsAfterTheEnd(t *testing.T) {
	a, _ := served(t)
	a.hooks.Close()
	dir := t.TempDir()
	a.config.State = t.TempDir()
	a.records = noRecords(a.config)
	script, goOn := filepath.Join(dir, string(migration.MigrationDone)+".d", "10-tell"), filepath.Join(dir, "go-on")
	if err := errors.Join(os.Mkdir(filepath.Dir(script), 0o700),
		os.WriteFile(script, []byte("#!/bin/sh\nuntil [ -e "+goOn+" ]; do sleep 0.01; done\necho no way\nexit 1\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	a.hooks = hook.New(hook.Config{Dir: dir}, a.log, a.hookNote, a.metrics.HookCalled)
	m, reader := leaving(a), a.feed.join()
	m.rec.Event(migration.MigrationDone)
	m.rec.End(migration.Completed, nil, time.Now())
	if err := a.records.Write(m.plan.ID+".json", m.rec.Snapshot); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var note record.Event
	for note.Kind != "note" {
		note = (<-reader.events).Event
	}
	a.hooks.Close()
	a.noting.Wait()
	a.records = noRecords(a.config) // of the next agent
	if rep, _ := a.records.Report(m.plan.ID); !slices.Equal(rep.Notes, []string{note.Text}) {
		t.Errorf("the history has the notes %q, want %q", rep.Notes, note.Text)
	}
	a.hookNote(callOf("paris", m.plan, record.Event{Name: migration.LeaseEnded}), "late")
	a.noting.Wait()
	if rep, _ := a.records.Report(m.plan.ID); !slices.Equal(rep.Notes, []string{note.Text, "late"}) {
		t.Errorf("after a restart the history has the notes %q", rep.Notes)
	}
}
