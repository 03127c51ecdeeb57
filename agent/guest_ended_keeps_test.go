package agent

import (
	"testing"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/clock"
	"godwit/migration"
)

// keepsAt says whether a destination at which web ended unheard goes on to keep what it was as it is answered so, and
// knows then.
func keepsAt(t *testing.T, answer talk.CourseAnswer) (keeps, knows bool) {
	t.Helper()
	a := startedAgain(t)
	g := endedWeb(t, a)
	u := care.Unheard{Migration: "m-00000002", From: "rome"}
	g.Remember(func(h *care.Held) { h.By, h.Unheard = u.Migration, &u })
	if kept, err := a.guests.ForgetEnded(g, "it powered off", clock.Now()); !kept || err != nil {
		t.Fatal(kept, err)
	}
	if err := a.hearOfEnded("web", 3, u, answer, nil); err != nil {
		t.Fatal(err)
	}
	all, err := a.guests.Ended()
	if err != nil {
		t.Fatal(err)
	}
	return len(all) == 1, len(all) == 0 || all[0].Unheard == nil
}

// TestOneKeepsWhatItWas: of a guest that ended at its destination, and whose QEMU is gone from its source too, one of the
// two keeps what it was, whenever the source is asked: as it turns back, once it has, or of its next agent.
func TestOneKeepsWhatItWas(t *testing.T) {
	for name, c := range map[string]struct {
		at    migration.Effect
		also  func(*outgoing)
		there bool
	}{
		"runs there, by its word":      {migration.SeedDisks, func(m *outgoing) { m.runsThere.Store(true) }, true},
		"is not known there":           {migration.SeedDisks, func(*outgoing) {}, false},
		"given up there":               {migration.AwaitLanding, func(*outgoing) {}, false},
		"its pages were lost":          {migration.AwaitLanding, func(m *outgoing) { m.state.Outcome = migration.Failed }, false},
		"another of its name has come": {migration.SeedDisks, func(m *outgoing) { m.runsThere.Store(true); m.aside = true }, true},
	} {
		a := startedAgain(t)
		g := endedWeb(t, a)
		a.guests = guests.In(a.config.StatePath("guests"))
		g = guests.New(g.Held(), nil)
		a.guests.ExpectAgain(g)
		m := leavesAt(t, a, g, c.at)
		m.state.Epoch = 3
		c.also(m)
		var j written.Source
		if err := m.writeDown(m.state, nil, false); err != nil || journal.Read(a.config.StatePath("journal"), m.plan.ID, &j) != nil || j.RunsThere != c.there {
			t.Errorf("%s: its journal has %+v, %v", name, j, err)
		}
		turns := m.state
		turns.Course = migration.Undoing
		m.told.Store(&turns)
		m.rec.Edit(func(r *record.Report) { r.Epoch = 3 })
		a.records.Add(m.rec)
		asked := func() talk.CourseAnswer {
			answer, err := a.peerCourse(callFrom(t, "oslo", "m-00000002", nil))
			if err != nil {
				t.Fatal(err)
			}
			return answer.(talk.CourseAnswer)
		}
		a.mu.Lock()
		a.outgoing[m.plan.ID] = m
		a.mu.Unlock()
		answers := map[string]talk.CourseAnswer{"as it turns back": asked()}
		a.closeSource(m)
		answers["as it has"] = asked()
		a.records = noRecords(a.config)
		answers["by its next agent"] = asked()
		all, err := a.guests.Ended()
		if err != nil || !m.aside && (len(all) == 0) != c.there {
			t.Errorf("%s: the source keeps %+v, %v", name, all, err)
		}
		for when, answer := range answers {
			if keeps, knows := keepsAt(t, answer); keeps != c.there || !knows {
				t.Errorf("%s, asked %s: %+v: the destination keeps it: %v, and knows: %v", name, when, answer, keeps, knows)
			}
		}
	}
}

// TestRunsThereIsKnownFirst: whether a source that was found again keeps what its guest was it does not say before it
// has asked the destination.
func TestRunsThereIsKnownFirst(t *testing.T) {
	m := &outgoing{rec: record.New("rome", migration.Plan{}, clock.Now())}
	m.told.Store(&migration.Source{Course: migration.Undoing, Outcome: migration.Aborted, Epoch: 3})
	m.asking.Store(true)
	if keeps, knows := keepsAt(t, m.course()); !keeps || knows {
		t.Errorf("keeps %v, knows %v", keeps, knows)
	}
}
