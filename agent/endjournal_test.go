package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/vm"
)

// TestJournalEndsLater: while the history cannot be written the journal stays; when it can,
// the journal goes.
func TestJournalEndsLater(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &config.Config{Host: "paris", State: dir}
	a := &Agent{config: c, log: slog.New(slog.DiscardHandler), ctx: ctx, records: noRecords(c)}
	blocked := filepath.Join(dir, "history")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	log, err := journal.Create(a.config.StatePath("journal"), "m-00000001")
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(written.Source{Side: "source"}, false); err != nil {
		t.Fatal(err)
	}
	a.endJournal(log, "m-00000001", func() error {
		return a.records.Write("m-00000001.json", func() record.Report { return record.Report{ID: "m-00000001", Outcome: migration.Aborted} })
	})
	unfinished := func() int {
		ids, err := journal.Unfinished(a.config.StatePath("journal"))
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
	if rep, ok, _ := a.records.History("m-00000001"); !ok || rep.Outcome != migration.Aborted {
		t.Errorf("history: %+v, %v", rep, ok)
	}
	a.actors.Wait()
}

// TestJournalIsRemovedLater: a journal that could not be removed, whose migration's history is written, is removed as
// soon as it can be, by the same agent, and bars its guest no longer; until then another try of the migration goes on
// in it.
func TestJournalIsRemovedLater(t *testing.T) {
	need.Root(t)
	const id = "m-00000001"
	for what, end := range map[string]func(a *Agent, log *journal.File){
		"ended here": func(a *Agent, log *journal.File) { a.endJournal(log, id, func() error { return nil }) },
		"ended before": func(a *Agent, log *journal.File) {
			if err := errors.Join(log.Close(), a.resumeSource(id, nil)); err != nil {
				t.Error(err)
			}
		},
	} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		ctx, cancel := context.WithCancel(t.Context())
		a.ctx, a.records = ctx, noRecords(a.config)
		plan := migration.Plan{ID: id, Guest: "web", From: "paris", To: "rome", Epoch: 2}
		if err := a.records.Write(id+".json", func() record.Report {
			return record.Report{ID: id, Guest: "web", Epoch: 2, Ended: 1, Outcome: migration.Aborted}
		}); err != nil {
			t.Fatal(err)
		}
		log, err := journal.Create(a.config.StatePath("journal"), id)
		if err == nil {
			err = log.Append(written.Source{Side: "source", Plan: plan, State: migration.Source{Course: migration.Forward, Epoch: 2}}, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		file := a.config.StatePath("journal", id+".journal")
		if err := unix.Mount(file, file, "", unix.MS_BIND, ""); err != nil { // a file that something is mounted on is not removed
			t.Fatal(err)
		}
		end(a, log)
		a.mu.Lock()
		waits := a.unwritten[id]
		a.mu.Unlock()
		if _, err := os.Stat(file); err != nil || waits == nil {
			t.Errorf("%s: it does not wait, %v", what, err)
		}
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		waitFor(t, what+": it is removed", func() bool { return a.journalLeft("web", "") == nil })
		waitFor(t, what+": it waits no more", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.unwritten[id] == nil })
		cancel()
		a.actors.Wait()
	}
}

// TestJournalEndsThoughItWasAskedFor: a journal that another try of its migration asked for, just as its history was
// tried again, and could not begin in, as on a full disk, is ended when the history can be written.
func TestJournalEndsThoughItWasAskedFor(t *testing.T) {
	const id = "m-00000001"
	a := bareAgent(t, &config.Config{Host: "paris"})
	log, err := journal.Create(a.config.StatePath("journal"), id)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a.ctx = ctx
		full := true
		a.endJournal(log, id, func() error {
			if full {
				return unix.ENOSPC
			}
			return nil
		})
		u := a.unwritten[id]
		u.has.Lock() // as beginJournal does
		time.Sleep(endAgain + endAgain/2)
		full = false
		u.has.Unlock() // which could not write down that it begins
		time.Sleep(endAgain)
		synctest.Wait()
		if !log.Gone() || a.unwritten[id] != nil {
			t.Error("it is not ended")
		}
		cancel()
		a.actors.Wait()
	})
}

// TestEndedMigrationLeavesItsGuestToAnother: of a migration that ended, and whose history could
// not be written, the next agent writes that, also where another migration has the guest.
func TestEndedMigrationLeavesItsGuestToAnother(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris", Peers: []config.Neighbour{{Host: "rome", Site: "rome"}}})
	a.ctx, a.feed = t.Context(), newFeed()
	a.outgoing, a.incoming, a.records = map[string]*outgoing{}, map[string]*incoming{}, noRecords(a.config)
	const ended, another = "m-00000001", "m-00000002"
	g := guests.New(care.Held{Description: config.Description{Name: "web"}}, runs{gone{done: make(chan struct{})}})
	underCare(t, a.guests, "web", g)
	if err := g.Take(another); err != nil {
		t.Fatal(err)
	}
	log, err := journal.Create(a.config.StatePath("journal"), ended)
	if err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: ended, Guest: "web", From: "paris", To: "rome", Epoch: 2}
	if err := log.Append(written.Source{Side: "source", Plan: plan, State: migration.Source{Course: migration.Ended, Outcome: migration.Aborted, Epoch: 2}}, true); err != nil {
		t.Fatal(err)
	}
	log.Close()
	a.resumeMigrations(t.Context(), nil)
	a.actors.Wait()
	if rep, ok, err := a.records.History(ended); !ok || err != nil || rep.Outcome != migration.Aborted {
		t.Errorf("history: %+v, %v, %v; left alone: %v", rep, ok, err, a.unread)
	}
	if g.Migration() != another {
		t.Errorf("the guest is busy with %q", g.Migration())
	}
}

// TestNextTryWhileTheHistoryWaits: a try that was undone bars no later one of the same migration, though its history
// cannot be written: that goes on in its journal, and nobody takes it away when the history can be written again.
func TestNextTryWhileTheHistoryWaits(t *testing.T) {
	a := startedAgain(t)
	p := goodPreparation()
	p.Tunnel = netip.MustParseAddrPort("192.0.2.1:700")
	p.Description.Disks = []vm.Disk{{ID: "disk0"}} // whose size is not said, so that it is undone at once
	blocked := a.config.StatePath("history")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	a.records.Add(record.New("rome", migration.Plan{ID: p.Plan.ID, Epoch: p.Plan.Epoch - 1}, a.clock())) // so that the file is not asked
	undone := func() {
		if _, err := a.incomingFor(p); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "it is undone", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.incoming[p.Plan.ID] == nil })
	}
	undone()
	p.Plan.Epoch++
	undone()
	var j written.Destination
	if err := journal.Read(a.config.StatePath("journal"), p.Plan.ID, &j); err != nil || j.State.Epoch != p.Plan.Epoch {
		t.Errorf("the journal is of epoch %d, %v", j.State.Epoch, err)
	}
	a.records.Amend(p.Plan.ID, func(r *record.Report) { r.TunnelDown = 7 }) // what ends later is known to the history, too
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is written", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.unwritten) == 0 })
	if err := a.journalLeft(p.Plan.Guest, ""); err != nil {
		t.Error(err)
	}
	if rep, _, err := a.records.History(p.Plan.ID); err != nil || rep.Epoch != p.Plan.Epoch || rep.TunnelDown != 7 {
		t.Errorf("the history is of epoch %d, its tunnel ended at %d, %v", rep.Epoch, rep.TunnelDown, err)
	}
}

// TestTakenBackIsForgottenOnceTold: of a guest that was taken back, which a full disk did not take at first, no file is
// left when its other host has heard of it before there was room.
func TestTakenBackIsForgottenOnceTold(t *testing.T) {
	a := startedAgain(t)
	a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		peer.Answer(w, talk.ReleaseAnswer{State: "declined"}, nil)
	}))
	taken := Taken{Migration: "m-00000001", Host: "paris", Undo: talk.Undo{Epoch: 3, Released: true}, told: new(atomic.Bool)}
	a.tellTaken(taken)
	if err := taken.write(a); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(a.config.StatePath("taken", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestTakenBackIsNotForgotten: that a guest was taken back, and that its other host has not heard of it, is known to
// later agents also where a full disk took the journal's record and no file: the journal stays until there is one.
func TestTakenBackIsNotForgotten(t *testing.T) {
	a := startedAgain(t)
	haltedGuest(t, a, "web")
	j := journalled("m-00000001", "berlin", migration.Source{Course: migration.Ended, Outcome: migration.Aborted, Epoch: 3, Taken: true})
	path := journalOf(t, a, j.Plan.ID, j)
	blocked := a.config.StatePath("taken")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	a.resumeMigrations(a.ctx, nil)
	waitFor(t, "it waits", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.unwritten[j.Plan.ID] != nil })
	if _, err := os.Stat(path); err != nil {
		t.Errorf("its journal is gone: %v", err)
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it has ended", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.unwritten[j.Plan.ID] == nil })
	var taken Taken
	if err := statefile.Read(a.config.StatePath("taken", j.Plan.ID+".json"), &taken); err != nil || taken.Undo.Epoch != 3 || taken.Host != "berlin" {
		t.Errorf("%+v, %v", taken, err)
	}
	if rep, ok, err := a.records.History(j.Plan.ID); !ok || err != nil || rep.Epoch != 3 {
		t.Errorf("history: %+v, %v, %v", rep, ok, err)
	}
}
