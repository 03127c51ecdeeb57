package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/migration"
)

func goodPreparation() talk.Preparation {
	held := migration.Address{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Home: "paris"}
	next := migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Gateway: netip.MustParseAddr("10.2.1.1"), Home: "rome"}
	return talk.Preparation{
		Description: config.Description{Name: "web", Memory: 256 << 20, NICs: []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}},
		Plan: migration.Plan{
			ID: "m-00000001", Epoch: 3, Guest: "web", From: "paris", To: "rome", Network: "mptcp",
			Held: []migration.Address{held}, Next: []migration.Address{next},
		},
	}
}

// TestPreparationThatIsNotWritten: what the journal does not take is refused before anything is
// done, and nothing is left of it.
func TestPreparationThatIsNotWritten(t *testing.T) {
	a := between(t)
	a.incoming, a.records = map[string]*incoming{}, noRecords(a.config)
	p := goodPreparation()
	p.Description.Start = slices.Repeat([]string{"-device"}, 300000)
	if m, err := a.incomingFor(p); err == nil || m != nil {
		t.Errorf("begun: %+v", m)
	}
	left, err := journal.Unfinished(a.config.StatePath("journal"))
	if err != nil || len(left)+len(a.incoming)+len(a.records.All()) > 0 {
		t.Errorf("left: %v, %v, %v, %v", left, err, a.incoming, a.records.All())
	}
}

// TestJournalsLeftAlone: what cannot be read or cannot be meant is said in one line,
// for `godwit recover` too; the journal stays as it is, and the guest under care.
func TestJournalsLeftAlone(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.outgoing, a.incoming, a.records = map[string]*outgoing{}, map[string]*incoming{}, noRecords(a.config)
	g := guests.New(care.Held{Description: config.Description{Name: "web"}, Epoch: 2}, nil)
	underCare(t, a.guests, "web", g)
	line := func(body string) string {
		return fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)), body)
	}
	head := line(`{"godwit_journal":2}`)
	plan := `"plan":{"id":"m-0000000%d","guest":"web","to":"rome"}`
	dir := a.config.StatePath("journal")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{}
	wants := []string{"newer godwit", "not a record", "checksum", `side "middle"`, "step 99", "explode", "of migration", "landing", "cannot unmarshal", `pause here, and was "release"`, `course "" is unknown`}
	for i, data := range []string{
		line(`{"godwit_journal":9}`) + "later forms\n",
		head + "rubbish\n" + line(`{"side":"source"}`),
		head + strings.Replace(line(`{"side":"source"}`), "source", "sourcf", 1),
		head + line(`{"side":"middle"}`),
		head + line(`{"side":"source",`+fmt.Sprintf(plan, 4)+`,"state":{"course":"forward","at":99}}`),
		head + line(`{"side":"source",`+fmt.Sprintf(plan, 5)+`,"state":{"course":"undoing","at":7,"outcome":"aborted","undo":["explode"]}}`),
		head + line(`{"side":"source",`+fmt.Sprintf(plan, 9)+`,"state":{"course":"forward","at":7}}`),
		head + line(`{"side":"destination","offer":{`+fmt.Sprintf(plan, 7)+`},"state":{"landing":"upside down"}}`),
		head + line(`{"side":"source","state":7}`),
		head + line(`{"side":"source",`+fmt.Sprintf(plan, 9)+`,"state":{"course":"forward","at":9},"doing":"release"}`), // another version counts otherwise
		head + line(`{"side":"source","plan":{"id":"m-0000000a","guest":"web","to":"rome"}}`),
	} {
		name := fmt.Sprintf("m-0000000%x", i)
		contents[name] = []byte(data)
		if err := os.WriteFile(filepath.Join(dir, name+".journal"), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.resumeMigrations(t.Context(), nil)
	for i, want := range wants {
		name := fmt.Sprintf("m-0000000%x", i)
		if why := a.unread[name]; !strings.Contains(why, want) || strings.Contains(why, "\n") {
			t.Errorf("journal %d: %q, want %q", i, why, want)
		}
		if data, err := os.ReadFile(filepath.Join(dir, name+".journal")); err != nil || !bytes.Equal(data, contents[name]) {
			t.Errorf("journal %d was changed: %v", i, err)
		}
		doubts, err := a.doubts(t.Context(), name)
		if err != nil || len(doubts) != 1 || doubts[0].Here != a.unread[name] {
			t.Errorf("journal %d: %+v, %v", i, doubts, err)
		}
	}
	if len(a.outgoing)+len(a.incoming) > 0 || g.Migration() != "" || found(a.guests, "web") != g {
		t.Error("something was begun")
	}
	all, err := a.doubts(t.Context(), "")
	if err != nil || len(all) != len(wants) {
		t.Errorf("%d doubts, %v", len(all), err)
	}
	if _, err := a.doubts(t.Context(), "db"); err == nil {
		t.Error("a guest of which nothing is known is in doubt")
	}
}

func TestTakeBackIsRefused(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	plan := goodPreparation().Plan
	m := &outgoing{a: a, plan: plan, guest: guests.New(care.Held{}, nil), rec: record.New("paris", plan, time.Now())}
	a.outgoing, a.incoming = map[string]*outgoing{plan.ID: m}, map[string]*incoming{}
	err := a.takeBack(t.Context(), "m-00000009", api.TakeBack{Fenced: true})
	agenttest.Refused(t, "unknown", err, migration.CodeUsage, "m-00000009", "no migration of that id")
	agenttest.Refused(t, "not let go", a.takeBack(t.Context(), plan.ID, api.TakeBack{Fenced: true}), migration.CodeUsage, "has let its guest go")
	m.told.Store(new(sourceDoing(t, migration.Release)))
	agenttest.Refused(t, "its QEMU is gone", a.takeBack(t.Context(), plan.ID, api.TakeBack{Fenced: true}), migration.CodeUsage, "QEMU here is gone", "on rome")
	agenttest.Refused(t, "give up what is not in doubt", a.giveUp(t.Context(), plan.ID), migration.CodeUsage, "nothing of it is in doubt")
}

// TestTakenBackIsToldAfterARestart: an agent that ended between journalling that it took the
// guest back and writing down whom that must be told leaves it to the next: a host that
// comes back and hears nothing would go on running the guest.
func TestTakenBackIsToldAfterARestart(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris", Peers: []config.Neighbour{{Host: "rome", Site: "rome"}}})
	a.outgoing, a.incoming, a.records, a.feed = map[string]*outgoing{}, map[string]*incoming{}, noRecords(a.config), newFeed()
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(t.Context())
	cancel() // what is undone after it is begun, and may get far, before that is seen
	plan := goodPreparation().Plan
	state := migration.Source{Course: migration.Forward, Epoch: plan.Epoch}
	for state.Doing() != migration.Release {
		state.At++
	}
	state, _, err = state.Step(migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked, Text: "taken back"}})
	if err != nil {
		t.Fatal(err)
	}
	log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(written.Source{Side: "source", Plan: plan, State: state, Begun: 1, Doing: state.Reached()}, true); err != nil {
		t.Fatal(err)
	}
	log.Close()
	a.resumeMigrations(a.ctx, nil)
	a.actors.Wait()
	var taken Taken
	if err := statefile.Read(a.config.StatePath("taken", plan.ID+".json"), &taken); err != nil {
		t.Fatalf("%v; unread %v", err, a.unread)
	}
	if taken.Host != "rome" || taken.Undo.Epoch != plan.Epoch+1 || !taken.Undo.Released {
		t.Errorf("%+v", taken)
	}
}

// TestSupersede: a guest that landed here ends only by its own source's word, with a
// later right than the one it came by.
func TestSupersede(t *testing.T) {
	for _, c := range []struct {
		name, caller string
		epoch, holds uint64
		by           string
		ends         bool
	}{
		{"taken back", "paris", 4, 3, "m-00000001", true},
		{"the same right", "paris", 3, 3, "m-00000001", false},
		{"an earlier one", "paris", 2, 3, "m-00000001", false},
		{"of a host that has no say", "berlin", 4, 3, "m-00000001", false},
		{"it came back by a later right", "paris", 4, 5, "m-00000002", false},
		{"another stay by the same epoch", "paris", 4, 3, "m-00000002", false},
		{"started or adopted here since, and taken back itself", "paris", 4, 3, care.BegunHere, false},
		{"taken back; a file of before", "paris", 4, 3, "", true},
		{"it came back by a later right; a file of before", "paris", 4, 5, "", false},
	} {
		a := bareAgent(t, &config.Config{Host: "rome"})
		var err error
		if a.detours, err = detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
			t.Fatal(err)
		}
		g := guests.New(care.Held{Description: config.Description{Name: "web"}, Epoch: c.holds, By: c.by, Dir: a.guestDir("web", "3")}, nil)
		underCare(t, a.guests, "web", g)
		rec := record.New("rome", goodPreparation().Plan, time.Now())
		rec.End(migration.Completed, nil, time.Now())
		a.abortedEarly, a.incoming, a.records = map[string]earlyAbort{}, map[string]*incoming{}, noRecords(a.config)
		a.records.Add(rec)
		body, err := json.Marshal(talk.Undo{Epoch: c.epoch, Released: true})
		if err != nil {
			t.Fatal(err)
		}
		r := (&http.Request{
			TLS:  &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{c.caller}}}},
			Body: io.NopCloser(bytes.NewReader(body)),
		}).WithContext(t.Context())
		r.SetPathValue("id", "m-00000001")
		answer, err := a.peerAbort(r)
		if got, ok := answer.(talk.ReleaseAnswer); err != nil || !ok || got.State != "declined" {
			t.Errorf("%s: %+v, %v", c.name, answer, err)
		}
		if left := found(a.guests, "web") != nil; left == c.ends {
			t.Errorf("%s: guest left: %v", c.name, left)
		}
	}
}

// TestSupersedeWaitsForTheGuest: where a guest that landed here may run and is not to be asked just
// now, its source is not told that nothing is left of it: it would tell nobody again.
func TestSupersedeWaitsForTheGuest(t *testing.T) {
	h := care.Held{Description: config.Description{Name: "web"}, Epoch: 3}
	for name, hide := range map[string]func(*Agent){
		"its file cannot be read":      func(a *Agent) { unreadable(t, a, "web") },
		"its QEMU does not answer":     func(a *Agent) { a.guests.NoteSilent(h) },
		"it is waited for":             func(a *Agent) { a.guests.ExpectAgain(guests.New(h, nil)) },
		"another migration has it now": func(a *Agent) { taken(t, underCare(t, a.guests, "web", guests.New(h, nil)), "m-00000002") },
	} {
		a := between(t)
		rec := record.New("rome", goodPreparation().Plan, time.Now())
		rec.End(migration.Completed, nil, time.Now())
		a.records.Add(rec)
		hide(a)
		if answer, err := a.peerAbort(callFrom(t, "paris", "m-00000001", talk.Undo{Epoch: 4, Released: true})); err == nil {
			t.Errorf("%s: answered %+v", name, answer)
		}
	}
}

// TestAnotherTryIsNoAnswer: what an earlier try of a migration came to says nothing of a later
// one, whose journal is left alone here: the guest may run by that.
func TestAnotherTryIsNoAnswer(t *testing.T) {
	plan := goodPreparation().Plan
	later := plan
	later.Epoch++
	for _, c := range []struct {
		name string
		make func(a *Agent)
		ask  migration.Plan
		ok   bool
	}{
		{"the same try", func(*Agent) {}, plan, true},
		{"a later one", func(*Agent) {}, later, false},
		{"a journal is left alone", func(a *Agent) { a.unread = map[string]string{plan.ID: "why"} }, plan, false},
		{"a journal is there", func(a *Agent) { journalOf(t, a, plan.ID, "what is this?") }, plan, false},
	} {
		a := between(t)
		a.incoming, a.abortedEarly = map[string]*incoming{}, map[string]earlyAbort{}
		c.make(a)
		rep := record.Report{ID: plan.ID, Guest: "web", From: "paris", To: "rome", Epoch: plan.Epoch, Outcome: migration.Aborted, Ended: 1}
		if err := statefile.Write(a.config.StatePath("history", plan.ID+"-destination.json"), rep); err != nil {
			t.Fatal(err)
		}
		calls := map[string]func(*http.Request) (any, error){"release": a.peerRelease}
		if c.ask.Epoch == plan.Epoch {
			calls["abort"], calls["landing"], calls["events"], calls["landed"] = a.peerAbort, a.peerLanding, a.peerEvents, a.peerLanded
		}
		for name, call := range calls {
			var body any = c.ask
			if name == "abort" {
				body = talk.Undo{Epoch: c.ask.Epoch + 1, Released: true}
			}
			if answer, err := call(callFrom(t, "paris", plan.ID, body)); (err == nil) != c.ok {
				t.Errorf("%s, %s: %+v, %v", c.name, name, answer, err)
			}
		}
	}
}

// TestHistoryAnswers: what ended here is still known to the next agent, so that a
// source that did not hear it does, and a late prepare begins nothing.
func TestHistoryAnswers(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	a.incoming, a.records = map[string]*incoming{}, noRecords(a.config)
	p := goodPreparation()
	for outcome, want := range map[migration.Outcome]string{migration.Completed: "running", migration.Aborted: "declined"} {
		rep := record.Report{ID: p.Plan.ID, Guest: "web", From: "paris", To: "rome", Epoch: 3, Outcome: outcome, Ended: 1}
		if err := statefile.Write(a.config.StatePath("history", p.Plan.ID+"-destination.json"), rep); err != nil {
			t.Fatal(err)
		}
		answer, err := a.endedAnswer(callFrom(t, "paris", p.Plan.ID, nil), p.Plan.Epoch)
		if got, ok := answer.(talk.ReleaseAnswer); err != nil || !ok || got.State != want {
			t.Errorf("%s: %+v, %v", outcome, answer, err)
		}
		rec, err := a.records.Kept(p.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !rec.Watch(t.Context(), 0).Over {
			t.Errorf("%s: more is to come", outcome)
		}
		if m, err := a.incomingFor(p); err == nil {
			t.Errorf("%s: begun again by a late prepare: %v", outcome, m)
		}
		rep.Problem = &migration.Problem{Code: migration.CodeAgent, Text: "the destination's agent ended"}
		if err := statefile.Write(a.config.StatePath("history", p.Plan.ID+"-destination.json"), rep); err != nil {
			t.Fatal(err)
		}
		_, err = a.incomingFor(p) // a source that asks again for what an agent had begun that was killed
		if code := peer.AsProblem(err).Code; (code == migration.CodeAgent) != (outcome == migration.Aborted) {
			t.Errorf("%s: refused with %v, %s", outcome, err, code)
		}
	}
}

// TestDoubtsAreAskedAtOnce: who asks what is in doubt waits for a host that takes its time once, and not for each guest
// that was let go to it.
func TestDoubtsAreAskedAtOnce(t *testing.T) {
	a := between(t)
	const many = 10
	var asked atomic.Int32
	link := linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for asked.Add(1); asked.Load() < many && sleep(r.Context(), time.Millisecond); { // it answers none before it was asked for all
		}
		peer.Answer(w, talk.LandingAnswer{Landing: migration.Waiting, Vanished: "its QEMU is gone\x1b[2J"}, nil)
	}))
	for n := range many {
		plan := migration.Plan{ID: fmt.Sprintf("m-0000000%d", n), Guest: fmt.Sprint("web", n), From: "rome", To: "paris"}
		m := &outgoing{a: a, plan: plan, link: link, guest: guests.New(care.Held{}, runs{gone{done: make(chan struct{})}})}
		m.told.Store(new(sourceDoing(t, migration.Release)))
		a.outgoing[plan.ID] = m
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
	defer cancel()
	got, err := a.doubts(ctx, "")
	if err != nil || len(got) != many || slices.ContainsFunc(got, func(d api.Doubt) bool { return !d.Proven }) {
		t.Errorf("%+v, %v", got, err)
	} else if strings.Contains(got[0].There, "\x1b") {
		t.Errorf("the other host's word reaches the terminal as it is: %q", got[0].There)
	}
}

// TestNothingLeadsOutOfNoDoubt: of each doubt of a source a person is told what can be done, also where its own QEMU is
// gone.
func TestNothingLeadsOutOfNoDoubt(t *testing.T) {
	here := func(ended bool) *guests.Guest {
		done := make(chan struct{})
		if ended {
			close(done)
		}
		return guests.New(care.Held{}, runs{gone{done: done}})
	}
	for name, c := range map[string]struct {
		ended bool
		doubt api.Doubt
		word  string // of the last way
	}{
		"it may be taken back":       {false, api.Doubt{Proven: true}, "--take-back"},
		"nobody answers":             {false, api.Doubt{}, "--take-back --fenced, once rome"},
		"it is gone on both hosts":   {true, api.Doubt{Proven: true}, "--give-up, on rome"},
		"it is gone, nobody answers": {true, api.Doubt{}, "move STATE/journal/m-00000001.journal away"},
		"it runs there":              {true, api.Doubt{Alive: true}, ""},
	} {
		m := &outgoing{a: bareAgent(t, &config.Config{Host: "paris"}), plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}, guest: here(c.ended)}
		c.doubt.ID = m.plan.ID
		risk, ways := m.ways(c.doubt)
		if (risk == "") != (c.word == "") || !strings.Contains(strings.Join(ways[max(len(ways)-1, 0):], ""), c.word) {
			t.Errorf("%s: %q, %q", name, risk, ways)
		}
	}
	m := &outgoing{a: bareAgent(t, &config.Config{Host: "paris", Fence: "/usr/local/sbin/fence"}), plan: migration.Plan{To: "rome"}, guest: here(false)}
	if _, ways := m.ways(api.Doubt{ID: "m-00000001"}); len(ways) != 2 || !strings.Contains(ways[1], "m-00000001 --take-back: the fence switches ") {
		t.Errorf("with a fence: %q", ways)
	}
}
