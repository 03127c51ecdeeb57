package agent

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/statefile"
	"godwit/agent/written"
	"godwit/migration"
)

// rememberedGuest writes down guest web, whose QEMU is gone when the agent starts.
func rememberedGuest(t *testing.T, a *Agent) (h care.Held, file string) {
	t.Helper()
	h = goodHeld(a.config.Run)
	file = filepath.Join(a.config.StatePath("guests"), "web.json")
	if err := statefile.Write(file, h); err != nil {
		t.Fatal(err)
	}
	return h, file
}

// nobodyGets fails the test where a guest by the name web is started here, or prepared for.
func nobodyGets(t *testing.T, a *Agent) {
	t.Helper()
	p := goodPreparation()
	p.Plan.ID, p.Tunnel = "m-00000009", netip.MustParseAddrPort("192.0.2.1:700")
	_, err := a.apiStartGuest(callFrom(t, "", "", p.Description))
	agenttest.Refused(t, "start", err, migration.CodeBusy, "web")
	_, err = a.peerPrepare(callFrom(t, "paris", p.Plan.ID, p))
	agenttest.Refused(t, "prepare", err, migration.CodeBusy, "web")
	if len(a.incoming) > 0 {
		t.Error("something was begun")
	}
}

// TestNameOfAGuestThatWasLetGo: a guest that was let go, and whose QEMU here went with its host, may
// run elsewhere. Nobody gets its name before its migration has ended, nor what is made by it.
func TestNameOfAGuestThatWasLetGo(t *testing.T) {
	a := startedAgain(t)
	h, file := rememberedGuest(t, a)
	journalOf(t, a, "m-00000001", journalled("m-00000001", "paris", sourceDoing(t, migration.AwaitLanding)))
	ctx, end := context.WithCancel(a.ctx)
	a.ctx = ctx
	a.resumeMigrations(ctx, a.readopt(ctx))
	nobodyGets(t, a)
	end()
	a.actors.Wait()
	a.ctx = t.Context()
	m := a.outgoing["m-00000001"]
	if err := m.cleanSource(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.guests.NameFree("web"); err == nil {
		t.Error("what is removed here may be removed again, and its name is free")
	}
	m.state = migration.Source{Course: migration.Ended, Outcome: migration.Completed}
	a.closeSource(m)
	for _, path := range []string{h.Dir, file} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("left: %s, %v", path, err)
		}
	}
	if err := a.guests.NameFree("web"); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestNameInAJournalLeftAlone: what a journal says of its guest holds where nobody goes on with it.
func TestNameInAJournalLeftAlone(t *testing.T) {
	a := startedAgain(t)
	_, file := rememberedGuest(t, a)
	j := journalled("m-00000001", "paris", sourceDoing(t, migration.AwaitLanding))
	j.Doing = migration.CleanSource // of another version
	journalOf(t, a, "m-00000001", j)
	a.resumeMigrations(a.ctx, a.readopt(a.ctx))
	if unreadOf(a, "m-00000001") == "" {
		t.Fatal("it is gone on with")
	}
	nobodyGets(t, a)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("where its disks are was forgotten: %v", err)
	}
}

// TestNameInADamagedJournal: a guest whose journal here cannot be read, as after its host lost its power, may have been
// let go and run elsewhere. Whose it is, its beginning says: nobody gets its name, and where its disks are is not
// forgotten.
func TestNameInADamagedJournal(t *testing.T) {
	for name, ended := range map[string]bool{"let go, perhaps": false, "ended, perhaps": true} {
		a := startedAgain(t)
		_, file := rememberedGuest(t, a)
		j := journalled("m-00000001", "paris", sourceDoing(t, migration.AwaitLanding))
		if ended {
			j.State.Course = migration.Ended
		}
		path := journalOf(t, a, "m-00000001", j)
		data, err := os.ReadFile(path)
		if err == nil {
			copy(data[len(bytes.TrimRight(data, "\x00")):], "00000000 {\"plan\": {}}\n")
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.resumeMigrations(a.ctx, a.readopt(a.ctx))
		if unreadOf(a, "m-00000001") == "" {
			t.Fatalf("%s: it is gone on with", name)
		}
		nobodyGets(t, a)
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: where its disks are was forgotten: %v", name, err)
		}
	}
}

// endedAt is a source that turned back, from as far as an effect.
func endedAt(at migration.Effect) migration.Source {
	s := migration.Source{Course: migration.Ended, Outcome: migration.Aborted, Epoch: 2}
	for s.Reached() != at {
		s.At++
	}
	return s
}

// TestEndedJournalContinuesNothingOfAnother: a migration ended, and its journal stayed as its history could not
// be written; another then let the guest go. The next agent writes the history of the first, and no more.
func TestEndedJournalContinuesNothingOfAnother(t *testing.T) {
	for name, change := range map[string]func(*written.Source){
		"goes on":    func(*written.Source) {},
		"left alone": func(j *written.Source) { j.Doing = migration.CleanSource },
	} {
		a := startedAgain(t)
		_, machine := haltedGuest(t, a, "web")
		journalOf(t, a, "m-00000001", journalled("m-00000001", "paris", endedAt(migration.Pause)))
		j := journalled("m-00000002", "berlin", sourceDoing(t, migration.Release))
		change(&j)
		journalOf(t, a, "m-00000002", j)
		a.resumeMigrations(a.ctx, nil)
		waitFor(t, "history", func() bool { _, ok, _ := a.records.History("m-00000001"); return ok })
		if rep, _, _ := a.records.History("m-00000001"); rep.Outcome != migration.Aborted {
			t.Errorf("%s: it came to %s", name, rep.Outcome)
		}
		if machine.runs.Load() != 0 {
			t.Errorf("%s: a guest that was let go was continued", name)
		}
	}
}

// TestEndedJournalOfAGuestNotKnown: what an ended migration came to does not change where its guest's QEMU
// does not answer when the agent starts, or what is remembered of it cannot be read; nor is it forgotten.
func TestEndedJournalOfAGuestNotKnown(t *testing.T) {
	for name, unreadable := range map[string]bool{"silent": false, "unreadable": true} {
		a := startedAgain(t)
		h, _ := silently(t, a)
		file := filepath.Join(a.config.StatePath("guests"), "web.json")
		if err := statefile.Write(file, h); err != nil {
			t.Fatal(err)
		}
		if unreadable {
			if err := os.Truncate(file, 20); err != nil {
				t.Fatal(err)
			}
		}
		journalOf(t, a, "m-00000001", journalled("m-00000001", "paris", endedAt(migration.CopyMemory)))
		a.resumeMigrations(a.ctx, a.readopt(a.ctx))
		waitFor(t, name+": history", func() bool { _, ok, _ := a.records.History("m-00000001"); return ok })
		if rep, _, _ := a.records.History("m-00000001"); rep.Outcome != migration.Aborted {
			t.Errorf("%s: it came to %s", name, rep.Outcome)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: forgotten: %v", name, err)
		}
	}
}

// TestNoMigrationBesideAJournal: no migration of a guest begins while another's journal is here, which a
// later agent would go on with too.
func TestNoMigrationBesideAJournal(t *testing.T) {
	a := startedAgain(t)
	g, _ := haltedGuest(t, a, "web")
	path := journalOf(t, a, "m-00000001", journalled("m-00000001", "paris", endedAt(migration.Pause)))
	_, err := a.newOutgoing(migration.Request{Guest: "web", To: "paris"})
	agenttest.Refused(t, "beside a journal", err, migration.CodeBusy, "m-00000001", "web")
	if g.Migration() != "" {
		t.Errorf("the guest is busy with %s", g.Migration())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := a.draft(migration.Request{Guest: "web", To: "paris"}); err != nil {
		t.Error(err)
	}
}
