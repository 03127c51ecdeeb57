package agent

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// endedWeb is guest web, that came to rome by epoch 3, and whose QEMU is gone.
func endedWeb(t *testing.T, a *Agent) *guests.Guest {
	t.Helper()
	done := make(chan struct{})
	close(done)
	disk := diskOf(t, a, "web", 3)
	return guests.New(care.Held{
		Description: config.Description{
			Name: "web", Memory: 1 << 28, VCPUs: 2, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a"}}, Start: []string{"qemu-system-x86_64", "-S", "-incoming", "defer"},
			Disks: []vm.Disk{{ID: "vda", Path: disk, Format: "raw"}},
		},
		Dir: a.guestDir("web", "3"), Epoch: 3,
		Addresses: []migration.Address{
			{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome", Handover: "m-00000001"}, {Prefix: netip.MustParsePrefix("10.1.1.20/24"), Home: "paris"},
		},
	}, gone{done: done})
}

// TestEndedGuestIsKept: of a guest that has ended where it was under care stays what it is started again by, however
// that is found, and the log says how. Of one that was let go, or is lost, its disks elsewhere are newer: nothing stays.
func TestEndedGuestIsKept(t *testing.T) {
	closes := func(reached migration.Effect, outcome migration.Outcome) func(*testing.T, *Agent, *guests.Guest) {
		return func(t *testing.T, a *Agent, g *guests.Guest) {
			t.Helper()
			m := &outgoing{a: a, plan: migration.Plan{ID: "m-00000002", Guest: "web", From: "rome", To: "oslo"}, guest: g, work: &sourceWork{}}
			m.rec, m.state = record.New("rome", m.plan, time.Now()), sourceDoing(t, reached)
			m.state.Course, m.state.Outcome = migration.Ended, outcome
			var err error
			if m.log, err = journal.Create(a.config.StatePath("journal"), m.plan.ID); err != nil {
				t.Fatal(err)
			}
			a.closeSource(m)
		}
	}
	for name, c := range map[string]struct {
		end  func(*testing.T, *Agent, *guests.Guest)
		kept bool
	}{
		"its QEMU ended":    {func(t *testing.T, a *Agent, g *guests.Guest) { a.forgetIfEnded(t.Context(), g) }, true},
		"its host rebooted": {func(_ *testing.T, a *Agent, g *guests.Guest) { a.forgetLost(map[string]*guests.Guest{"web": g}) }, true},
		"as it landed": {func(t *testing.T, a *Agent, g *guests.Guest) {
			plan := migration.Plan{ID: "m-00000002", Guest: "web", From: "paris", To: "rome"}
			m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
			if err := m.leaveEnded(t.Context()); err != nil {
				t.Error(err)
			}
		}, true},
		"before it was let go":         {closes(migration.CopyMemory, migration.Aborted), true},
		"it was let go, and came back": {closes(migration.Release, migration.Aborted), false},
		"it was let go, and refused":   {closes(migration.AwaitLanding, migration.Aborted), false},
		"it is lost":                   {closes(migration.CopyMemory, migration.Failed), false},
		"somebody stops it": {func(t *testing.T, a *Agent, g *guests.Guest) {
			if err := a.stopGuest(t.Context(), g); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			var said bytes.Buffer
			a.log = slog.New(slog.NewTextHandler(&said, nil))
			g := underCare(t, a.guests, "web", endedWeb(t, a))
			c.end(t, a, g)
			if found(a.guests, "web") != nil {
				t.Fatal("it is under care")
			}
			e, err := a.guests.Ended("web")
			if says := strings.Contains(said.String(), `again="godwit guest start web"`); (err == nil) != c.kept || says != c.kept {
				t.Fatalf("kept %+v, %v; said %s", e, err, said.String())
			}
			if all := a.endedHere(); c.kept && (len(all) != 1 || all[0].Again != "godwit guest start web" || all[0].Epoch != 3) {
				t.Errorf("%+v", all)
			}
		})
	}
}

// TestNothingIsKeptOfOneElsewhere: what was kept of an end here goes as soon as this host hears that a guest of that
// name is elsewhere, or was: it comes from there, it has left, or it was taken back there.
func TestNothingIsKeptOfOneElsewhere(t *testing.T) {
	for name, hears := range map[string]func(*testing.T, *Agent){
		"it comes": func(t *testing.T, a *Agent) {
			m := comes(t, a)
			m.work.preparation.Description.Disks = []vm.Disk{{ID: "vda", Path: "/dev/null"}} // of which nobody knows the size
			if err := m.receive(t.Context()); err == nil {
				t.Error("it was received")
			}
		},
		"it has left": func(t *testing.T, a *Agent) {
			m := &outgoing{a: a, plan: migration.Plan{ID: "m-00000002", Guest: "web", From: "rome", To: "oslo"}, guest: endedWeb(t, a), work: &sourceWork{}}
			m.rec = record.New("rome", m.plan, time.Now())
			if err := m.cleanSource(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"it was taken back": func(t *testing.T, a *Agent) {
			rep := record.Report{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 3, Outcome: migration.Completed}
			if err := a.records.Write(rep.ID+"-destination.json", func() record.Report { return rep }); err != nil {
				t.Fatal(err)
			}
			if _, err := a.supersede(callFrom(t, "paris", rep.ID, nil), talk.Undo{Epoch: 4}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			g := endedWeb(t, a)
			if err := a.guests.KeepEnded(g, "powered off", time.Now()); err != nil {
				t.Fatal(err)
			}
			hears(t, a)
			_, err := a.guests.Ended("web")
			agenttest.Refused(t, name, err, migration.CodeUnknownGuest, "nothing is kept")
		})
	}
}

// TestPresenceOfOneThatEnded: who asks about a guest is told that one of its name ended here, and by which right it is
// known here.
func TestPresenceOfOneThatEnded(t *testing.T) {
	a := startedAgain(t)
	if err := a.guests.KeepEnded(endedWeb(t, a), "powered off", time.Now()); err != nil {
		t.Fatal(err)
	}
	for id, r := range map[string]record.Report{
		"m-00000001": {Guest: "web", Epoch: 5, Outcome: migration.Completed}, "m-00000002": {Guest: "web", Epoch: 8, Outcome: migration.Aborted},
		"m-00000003": {Guest: "db", Epoch: 9, Outcome: migration.Completed},
	} {
		if r.ID = id; a.records.Write(id+".json", func() record.Report { return r }) != nil {
			t.Fatal("not written")
		}
	}
	r := callFrom(t, "paris", "", nil)
	r.Method, r.URL = http.MethodGet, mustURL(t, "/v1/host?guest=web")
	said, err := a.peerPresence(r)
	if p, ok := said.(talk.Presence); err != nil || !ok || *p.Has || p.Ended == nil || p.Epoch != 5 {
		t.Errorf("%+v, %v", said, err)
	}
}

// TestHalfStartedIsTold: a guest that an agent was killed in starting again stays one that has ended.
func TestHalfStartedIsTold(t *testing.T) {
	a := startedAgain(t)
	g := endedWeb(t, a)
	if err := a.guests.KeepEnded(g, "powered off", time.Now()); err != nil {
		t.Fatal(err)
	}
	next := guests.New(g.Held(), nil)
	next.Remember(func(h *care.Held) { h.Epoch, h.Dir = 4, a.guestDir("web", "4") })
	if err := a.guests.Begin(next); err != nil {
		t.Fatal(err)
	}
	a.forgetLost(a.readopt(t.Context()))
	if left, _ := os.ReadDir(filepath.Join(a.config.State, "guests")); len(left) > 0 || found(a.guests, "web") != nil {
		t.Errorf("left %v", left)
	}
	if e, err := a.guests.Ended("web"); err != nil || e.Held.Epoch != 3 {
		t.Errorf("%+v, %v", e, err)
	}
}
