package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
)

// TestWhatFollowsAFullDisk: where the disk takes no record, it is said, and the switch does not go on: an agent that
// found a guest stopped, and did not know by whom, would not have it run on. Its undoing goes on.
func TestWhatFollowsAFullDisk(t *testing.T) {
	for at, want := range map[migration.Effect]migration.Effect{
		migration.PrepareHere: migration.SeedDisks, migration.AskSuspend: migration.UndoCopyMemory, migration.Flip: migration.Unflip,
		migration.Pause: migration.Resume, migration.Release: migration.AwaitLanding,
	} {
		a := startedAgain(t)
		var said bytes.Buffer
		a.log = slog.New(slog.NewTextHandler(&said, nil))
		g, _ := haltedGuest(t, a, "web")
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "rome", To: "berlin", Epoch: 2}
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err = errors.Join(err, log.Close()); err != nil { // it takes nothing
			t.Fatal(err)
		}
		m := &outgoing{a: a, guest: g, plan: plan, log: log, work: &sourceWork{}, rec: record.New("rome", plan, time.Now()), state: sourceDoing(t, at)}
		effects, err := m.step(migration.Input{Kind: migration.Done, Effect: at})
		if err != nil || len(effects) != 1 || effects[0] != want {
			t.Errorf("after %s: %v, %v; want %s", at, effects, err, want)
		}
		problem := m.state.Problem != nil && strings.Contains(m.state.Problem.Text, "write journal")
		if on := m.state.Course == migration.Forward; on == problem || on == (said.Len() == 0) {
			t.Errorf("after %s it is %s, and said: %v, %s", at, m.state.Course, m.state.Problem, said.String())
		}
	}
}

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
