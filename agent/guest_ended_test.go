package agent

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
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
// log says so. Of one that a person ends nothing is.
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
			if all, err := a.guests.Ended(); len(all) > 0 || err != nil {
				t.Errorf("before its migration is over: %+v, %v", all, err)
			}
			a.guests.Settled(g)
		}, true},
		"as it was to leave": {func(t *testing.T, a *Agent, g *guests.Guest) { a.closeSource(leavesAt(t, a, g, migration.SeedDisks)) }, true},
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

// leavesAt is the migration of a guest to oslo that has come to nothing, from as far as an effect.
func leavesAt(t *testing.T, a *Agent, g *guests.Guest, at migration.Effect) *outgoing {
	t.Helper()
	m := &outgoing{a: a, plan: migration.Plan{ID: "m-00000002", Guest: "web", From: "rome", To: "oslo"}, guest: g, work: &sourceWork{}}
	m.rec, m.state = record.New("rome", m.plan, time.Now()), endedAt(at)
	m.state.Problem = &migration.Problem{Code: migration.CodeHypervisor, Text: "oslo has no room"}
	taken(t, g, m.plan.ID)
	var err error
	if m.log, err = journal.Create(a.config.StatePath("journal"), m.plan.ID); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEndedAsItWasToLeave: what is kept of a guest whose QEMU is gone as its migration comes to nothing says how it
// ended, and by which migration: where that had let it go, disks elsewhere may be newer. Nothing is of one that runs
// where it was to go, or that another migration has.
func TestEndedAsItWasToLeave(t *testing.T) {
	const gone, lost = "its QEMU ended", "its QEMU was gone as the agent was started"
	for name, c := range map[string]struct {
		at   migration.Effect
		lost bool
		also func(m *outgoing)
		why  string // "": nothing is kept
	}{
		"in the check":     {at: migration.CheckThere, why: gone + ", as migration m-00000002 to oslo was under way"},
		"in the seed":      {at: migration.SeedDisks, why: gone + ", as migration m-00000002 to oslo was under way"},
		"with its host":    {at: migration.SeedDisks, lost: true, why: lost + ", as migration m-00000002 to oslo was under way"},
		"once it was over": {migration.SeedDisks, true, func(m *outgoing) { m.over = true }, lost + ", after migration m-00000002 to oslo had ended"},
		"it was declined":  {at: migration.Release, why: gone + ", as migration m-00000002 to oslo was under way; it had been let go, and oslo may have newer disks of it, set aside by that migration: oslo has no room"},
		"it was given up there": {migration.AwaitLanding, true, func(m *outgoing) { m.state.Problem = nil },
			lost + ", as migration m-00000002 to oslo was under way; it had been let go, and oslo may have newer disks of it, set aside by that migration"},
		"its pages were lost": {migration.AwaitLanding, true, func(m *outgoing) { m.state.Outcome = migration.Failed },
			lost + ", as migration m-00000002 to oslo was under way; it had been let go, and oslo may have newer disks of it, set aside by that migration: oslo has no room"},
		"it runs there":          {migration.SeedDisks, true, func(m *outgoing) { m.runsThere.Store(true) }, ""},
		"it went":                {migration.CleanSource, true, func(m *outgoing) { m.state.Outcome = migration.Completed }, ""},
		"another of its name is": {migration.SeedDisks, true, func(m *outgoing) { m.aside = true }, ""},
	} {
		a := startedAgain(t)
		g := endedWeb(t, a)
		if c.lost { // as forgetLost has it
			a.guests = guests.In(a.config.StatePath("guests"))
			g = guests.New(g.Held(), nil)
			a.guests.ExpectAgain(g)
		}
		m := leavesAt(t, a, g, c.at)
		if c.also != nil {
			c.also(m)
		}
		a.closeSource(m)
		all, err := a.guests.Ended()
		if err != nil || (len(all) == 1) != (c.why != "") || len(all) == 1 && (all[0].Why != c.why || all[0].Description.Disks[0].Path != g.Held().Description.Disks[0].Path) {
			t.Errorf("%s: kept %+v, %v, want why %q", name, all, err, c.why)
		}
		if held, errs := a.guests.Remembered(); !m.aside && m.state.Outcome != migration.Completed && (len(held) > 0 || len(errs) > 0) {
			t.Errorf("%s: under care is %+v, %v", name, held, errs)
		}
	}
}

// TestEndedWithItsHostInTheSeed: of a guest whose host reboots while its disks are copied, or whose copy had come to
// nothing, one end is kept; and none where its destination says that it went there, as where STATE is of a backup.
func TestEndedWithItsHostInTheSeed(t *testing.T) {
	const gone = "its QEMU was gone as the agent was started, "
	for name, c := range map[string]struct {
		state   migration.Source
		landing migration.Landing
		why     string // "": nothing is kept
	}{
		"its destination does not know it": {sourceDoing(t, migration.SeedDisks), "", gone + "as migration m-00000002 to oslo was under way"},
		"its destination refused it":       {sourceDoing(t, migration.SeedDisks), migration.Gone, gone + "as migration m-00000002 to oslo was under way"},
		"it runs there":                    {sourceDoing(t, migration.SeedDisks), migration.Landed, ""},
		"it was over":                      {endedAt(migration.SeedDisks), "", gone + "after migration m-00000002 to oslo had ended"},
		"it was over, as it ran there":     {endedAt(migration.SeedDisks), "", ""},
	} {
		a := startedAgain(t)
		endedWeb(t, a)
		a.guests = guests.In(a.config.StatePath("guests"))
		a.links["oslo"] = linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.landing == "" || !strings.HasSuffix(r.URL.Path, "/landing") {
				peer.Answer(w, nil, &migration.Problem{Code: migration.CodeInternal, Text: "nothing is known of it"})
				return
			}
			peer.Answer(w, talk.LandingAnswer{Landing: c.landing}, nil)
		}))
		j := journalled("m-00000002", "oslo", c.state)
		j.RunsThere = name == "it was over, as it ran there" // which an earlier agent was told
		journalOf(t, a, "m-00000002", j)
		a.resumeMigrations(a.ctx, a.readopt(a.ctx))
		a.actors.Wait()
		all, err := a.guests.Ended()
		if err != nil || (len(all) == 1) != (c.why != "") || len(all) == 1 && all[0].Why != c.why {
			t.Errorf("%s: kept %+v, %v, want why %q", name, all, err, c.why)
		}
		if rep, ok, err := a.records.History("m-00000002"); !ok || err != nil || rep.Outcome != migration.Failed {
			t.Errorf("%s: history %v, %v, %s", name, ok, err, rep.Outcome)
		}
		if held, errs := a.guests.Remembered(); len(held) > 0 || len(errs) > 0 || a.guests.NameFree("web") != nil {
			t.Errorf("%s: its name is not free: %v, %v", name, held, errs)
		}
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
