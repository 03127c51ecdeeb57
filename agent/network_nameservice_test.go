package agent

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/nameserver"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
)

// TestTellNames: no server, or an address that is kept: nothing is told. What is
// heard after a migration's end is in the history all the same.
func TestTellNames(t *testing.T) {
	a := bareAgent(t, &config.Config{})
	if a.tellNames(migration.Plan{}, nil) != nil {
		t.Error("without a name server, something is told")
	}
	a.config.DNS = &nameserver.Config{}
	if a.tellNames(migration.Plan{Network: "tunnel"}, nil) != nil {
		t.Error("the address is kept, and something is told")
	}
	rec := record.New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
	a.records.Add(rec)
	rec.End(migration.Completed, nil, time.Now())
	path := a.config.StatePath("history", "m-00000001-destination.json")
	if err := statefile.Write(path, rec.Snapshot()); err != nil {
		t.Fatal(err)
	}
	a.remark("m-00000001", rec, "late")
	var rep record.Report
	if err := statefile.Read(path, &rep); err != nil || len(rep.Notes) != 1 || len(rec.Snapshot().Notes) != 1 {
		t.Errorf("notes in the history %v, in memory %v, %v", rep.Notes, rec.Snapshot().Notes, err)
	}
}

// TestNamesNotTaken: a move's end waits for what comes of the first try, and for none after it: that the name server could not be told is in its report
// then, and that it was told at last comes into the history.
func TestNamesNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := bareAgent(t, &config.Config{DNS: &nameserver.Config{Key: nameserver.Key{File: filepath.Join(t.TempDir(), "none")}}})
		ctx, cancel := context.WithCancel(t.Context())
		a.ctx = ctx
		here := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
		underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{here}}, nil))
		plan := migration.Plan{ID: "m-00000001", Guest: "web", Next: []migration.Address{here}}
		rec := record.New("paris", plan, time.Now())
		begun := time.Now()
		awaitNames(ctx, a.tellNames(plan, rec))
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("it waits for %v", waited)
		}
		if notes := rec.Snapshot().Notes; len(notes) != 1 || !strings.Contains(notes[0], "trying again") {
			t.Errorf("noted: %q", notes)
		}
		time.Sleep(time.Hour)
		if notes := rec.Snapshot().Notes; len(notes) != 2 || !strings.Contains(notes[1], "given up") {
			t.Errorf("noted in the end: %q", notes)
		}
		cancel()
		a.actors.Wait()
	})
}

// TestNameOfAGuestThatWentOn: the name server is not told, later on, of addresses that the guest has left: its next host has told it of
// others.
func TestNameOfAGuestThatWentOn(t *testing.T) {
	a := &Agent{config: &config.Config{}, guests: guests.In(t.TempDir())}
	here := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	g := guests.New(care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{here}}, nil)
	underCare(t, a.guests, "web", g)
	still := func() bool { return a.hasAddresses("web", []migration.Address{here}) }
	m := &outgoing{}
	taken(t, g, "m-00000002")
	a.outgoing = map[string]*outgoing{"m-00000002": m}
	if !still() {
		t.Fatal("it is not here")
	}
	if m.told.Store(new(sourceDoing(t, migration.Release))); still() {
		t.Error("it was let go, and its next host tells of it")
	}
	m.told.Store(nil)
	if leavesCare(t, a.guests, "web"); still() {
		t.Error("it is under care no more")
	}
}
