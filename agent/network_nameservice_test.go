package agent

import (
	"net/netip"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
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

// TestNameOfAGuestThatWentOn: the name server is not told, later on, of addresses that the guest has left: its next host has told it of
// others.
func TestNameOfAGuestThatWentOn(t *testing.T) {
	a := &Agent{config: &config.Config{}, guests: &guests{byName: map[string]*Guest{}}}
	here := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Addresses: []migration.Address{here}}}
	a.guests.byName["web"] = g
	still := func() bool { return a.hasAddresses("web", []migration.Address{here}) }
	m := &outgoing{}
	g.busy, a.outgoing = "m-00000002", map[string]*outgoing{"m-00000002": m}
	if !still() {
		t.Fatal("it is not here")
	}
	if m.told.Store(new(sourceDoing(t, migration.Release))); still() {
		t.Error("it was let go, and its next host tells of it")
	}
	m.told.Store(nil)
	if delete(a.guests.byName, "web"); still() {
		t.Error("it is under care no more")
	}
}
