package agent

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// endedWeb is guest web, that came to rome by epoch 3, is under care, and whose QEMU is gone.
func endedWeb(t *testing.T, a *Agent) *guests.Guest {
	t.Helper()
	done := make(chan struct{})
	close(done)
	return underCare(t, a.guests, "web", guests.New(care.Held{
		Description: config.Description{
			Name: "web", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a"}}, Start: []string{"qemu-system-x86_64", "-S", "-incoming", "defer"},
			Disks: []vm.Disk{{ID: "vda", Path: diskOf(t, a, "web", 3), Format: "raw"}},
		},
		Dir: a.guestDir("web", "3"), Epoch: 3, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome"}},
	}, gone{done: done}))
}

// TestEndedGuestIsKept: what a guest was that has ended where it was under care is kept, however that is found, and the
// log says so. Of one that ended while it moved, or that a person ends, nothing is: its disks elsewhere may be newer.
func TestEndedGuestIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*testing.T, *Agent, *guests.Guest)
		kept bool
	}{
		"its QEMU ended": {func(t *testing.T, a *Agent, g *guests.Guest) { a.forgetIfEnded(t.Context(), g) }, true},
		"its host rebooted": {func(t *testing.T, a *Agent, _ *guests.Guest) {
			a.guests = guests.In(a.config.StatePath("guests"))
			a.forgetLost(a.readopt(t.Context()))
		}, true},
		"a journal of it is left": {func(t *testing.T, a *Agent, g *guests.Guest) {
			g.Take("m-00000002") //nolint:errcheck // nobody else has it
			a.forgetLost(map[string]*guests.Guest{"web": g})
			leavesCare(t, a.guests, "web")
		}, false},
		"as it landed": {func(t *testing.T, a *Agent, g *guests.Guest) {
			plan := migration.Plan{ID: "m-00000002", Guest: "web", From: "paris", To: "rome"}
			m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
			if err := m.leaveEnded(t.Context()); err != nil {
				t.Error(err)
			}
		}, false},
		"as it was to leave": {func(t *testing.T, a *Agent, g *guests.Guest) {
			m := &outgoing{a: a, plan: migration.Plan{ID: "m-00000002", Guest: "web", From: "rome", To: "oslo"}, guest: g, work: &sourceWork{}}
			m.rec, m.state = record.New("rome", m.plan, time.Now()), migration.Source{Course: migration.Ended, Outcome: migration.Aborted}
			var err error
			if m.log, err = journal.Create(a.config.StatePath("journal"), m.plan.ID); err != nil {
				t.Fatal(err)
			}
			a.closeSource(m)
		}, false},
		"a person ends it": {func(t *testing.T, a *Agent, g *guests.Guest) {
			if err := a.stopGuest(t.Context(), g); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := startedAgain(t)
			var said bytes.Buffer
			a.log = slog.New(slog.NewTextHandler(&said, nil))
			c.end(t, a, endedWeb(t, a))
			all, err := a.guests.Ended()
			if says := strings.Contains(said.String(), `see="godwit guest describe --ended web"`); found(a.guests, "web") != nil || err != nil || (len(all) == 1) != c.kept || says != c.kept {
				t.Errorf("kept %+v, %v; said %s", all, err, said.String())
			}
		})
	}
}

// TestEndedIsOldAsOneComes: what was kept goes as a guest of that name comes here, whatever becomes of that.
func TestEndedIsOldAsOneComes(t *testing.T) {
	a := startedAgain(t)
	a.forgetIfEnded(t.Context(), endedWeb(t, a))
	m := comes(t, a)
	m.work.preparation.Description.Disks = []vm.Disk{{ID: "vda", Path: "/dev/null"}} // of which nobody knows the size
	if all, err := a.guests.Ended(); len(all) != 1 || err != nil {
		t.Fatalf("%v, %v", all, err)
	}
	if err := m.receive(t.Context()); err == nil {
		t.Fatal("it was received")
	}
	a.guests.Settled(m.work.guest)
	if all, err := a.guests.Ended(); len(all) > 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}

// TestForgetEndedGuest: a person's word forgets it, once.
func TestForgetEndedGuest(t *testing.T) {
	a := startedAgain(t)
	a.forgetIfEnded(t.Context(), endedWeb(t, a))
	r := callFrom(t, "", "", nil)
	r.SetPathValue("name", "web")
	if _, err := a.apiDropEnded(r); err != nil {
		t.Fatal(err)
	}
	_, err := a.apiDropEnded(r)
	agenttest.Refused(t, "again", err, migration.CodeUnknownGuest, "guest \"web\": none of that name has ended here")
}
