package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

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

// endedMachine is a QEMU that was killed.
type endedMachine struct{ goneMachine }

func (endedMachine) Exit() vm.Exit { return vm.Exit{Detail: "signal: killed"} }

// TestPagesLost: a guest is lost only where its QEMU here is gone for sure, and the destination says that it misses pages.
func TestPagesLost(t *testing.T) {
	for name, c := range map[string]struct {
		machine vm.Machine
		lost    bool
		answer  talk.RefillAnswer
		err     error
		words   []string // none: it is not lost
	}{
		"it was killed":         {endedMachine{}, false, talk.RefillAnswer{State: talk.RefillOpen, Missing: 7}, nil, []string{"QEMU on paris was killed or broke (signal: killed)", "last 7 of its pages", "on rome", "start it anew"}},
		"its host was":          {nil, true, talk.RefillAnswer{State: talk.RefillOpen, Missing: 7}, nil, []string{"was lost (with its host", "7"}},
		"it does not answer":    {nil, false, talk.RefillAnswer{State: talk.RefillOpen, Missing: 7}, nil, nil},
		"all is there":          {endedMachine{}, false, talk.RefillAnswer{State: talk.RefillWhole, Missing: 0}, nil, nil},
		"nothing is missing":    {endedMachine{}, false, talk.RefillAnswer{State: talk.RefillOpen, Missing: 0}, nil, nil},
		"it could not run yet":  {endedMachine{}, false, talk.RefillAnswer{State: talk.RefillEarly, Missing: 0}, nil, nil},
		"nobody says":           {endedMachine{}, false, talk.RefillAnswer{}, &migration.Problem{Code: migration.CodePeer, Text: "?"}, nil},
		"nobody says, and lost": {nil, true, talk.RefillAnswer{}, errors.New("?"), nil},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.plan.Mode, m.plan.Transfer, m.lost, m.guest = "postcopy", "lanes", c.lost, guests.New(care.Held{}, c.machine)
		m.inbox = make(chan migration.Input, 1)
		patience := 200 * time.Millisecond
		if len(c.words) > 0 {
			patience = 20 * time.Second // until that is said
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if len(c.words) == 0 {
				time.AfterFunc(200*time.Millisecond, cancel)
			}
			peer.Answer(w, c.answer, c.err)
		}))
		m.keepServing(ctx)
		cancel()
		var got migration.Input
		select {
		case got = <-m.inbox:
		default:
		}
		if (got.Kind == migration.Lose) != (len(c.words) > 0) {
			t.Errorf("%s: %q, %v", name, got.Kind, got.Problem)
		}
		for _, w := range c.words {
			if got.Problem == nil || got.Problem.Code != migration.CodeGuestGone || !strings.Contains(got.Problem.Text, w) {
				t.Errorf("%s: %v, want %q", name, got.Problem, w)
			}
		}
	}
}

// TestPagesLostBeforeTheAnswer: that a guest is lost is found out also while its destination, whose QEMU waits for a page,
// cannot say whether it runs.
func TestPagesLostBeforeTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		machine vm.Machine
		landing talk.LandingAnswer
		want    bool
	}{
		"it waits for a page": {endedMachine{}, talk.LandingAnswer{Landing: migration.Starting}, true},
		"its QEMU answers":    {endedMachine{}, talk.LandingAnswer{Landing: migration.Starting, Status: vm.Paused}, false},
		"ours may live":       {nil, talk.LandingAnswer{Landing: migration.Starting}, false},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.plan.Mode, m.plan.Transfer, m.guest, m.inbox = "postcopy", "lanes", guests.New(care.Held{}, c.machine), make(chan migration.Input, 1)
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				peer.Answer(w, c.landing, nil)
				return
			}
			peer.Answer(w, talk.RefillAnswer{State: talk.RefillOpen, Missing: 7}, nil)
		}))
		followed := make(chan struct{})
		close(followed)
		if m.resendPages(t.Context(), followed) || len(m.inbox) > 0 != c.want {
			t.Errorf("%s: %d inputs", name, len(m.inbox))
		}
	}
}

// pausedThere is a QEMU that answers, of whose memory not all is there.
type pausedThere struct {
	halted
	memory vm.MigrationStatus
}

func (p *pausedThere) Progress(context.Context) (vm.Progress, error) {
	return vm.Progress{Status: p.memory}, nil
}

// TestMisses: a destination believes that its guest is lost only where it misses pages itself.
func TestMisses(t *testing.T) {
	answers := func(status vm.MigrationStatus) *guests.Guest {
		return guests.New(care.Held{}, &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, status})
	}
	for name, c := range map[string]struct {
		mode     string
		done     int64
		guest    *guests.Guest
		vanished bool
		want     bool
	}{
		"pages do not follow":         {"precopy", 0, nil, true, false},
		"the last page came":          {"postcopy", 1, nil, true, false},
		"QEMU is gone":                {"postcopy", 0, guests.New(care.Held{}, endedMachine{}), true, true},
		"nobody answers":              {"postcopy", 0, nil, false, false},
		"QEMU has all":                {"postcopy", 0, answers(vm.Completed), false, false},
		"QEMU lost what brings pages": {"hybrid", 0, answers(vm.PostcopyPaused), false, true},
	} {
		plan := migration.Plan{ID: "m-00000001", From: "paris", To: "rome", Mode: c.mode, Transfer: "lanes", Epoch: 3}
		m := &incoming{plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{}, dir: t.TempDir(), shown: c.guest}
		m.state = migration.Destination{Landing: migration.Adopting, Epoch: 3, Vanished: c.vanished}
		m.rec.Edit(func(r *record.Report) { r.MemoryDone = c.done })
		if got := m.misses(t.Context()); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestToldThatItIsLost: a destination that misses pages gives the guest up by its source's word, as failed; one that
// has them all runs it on.
func TestToldThatItIsLost(t *testing.T) {
	for name, status := range map[string]vm.MigrationStatus{"misses pages": vm.PostcopyPaused, "has all": vm.Completed} {
		a := startedAgain(t)
		a.incoming, a.records = map[string]*incoming{}, noRecords(a.config)
		log, err := journal.Create(a.config.StatePath("journal"), "m-00000001")
		if err != nil {
			t.Fatal(err)
		}
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "postcopy", Transfer: "lanes", Epoch: 3}
		m := &incoming{
			a: a, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), work: &destinationWork{}, dir: t.TempDir(),
			inbox: make(chan migration.Input, 4), wake: make(chan struct{}), state: migration.Destination{Landing: migration.Adopting, Epoch: 3},
			shown: guests.New(care.Held{}, &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, status}),
		}
		a.incoming[plan.ID] = m
		a.follow(m.rec, m.plan)
		go func() {
			in := <-m.inbox
			if _, err := m.step(in); err != nil {
				t.Error(err)
			}
			m.step(migration.Input{Kind: migration.Done, Effect: migration.SendBack}) //nolint:errcheck // it may run on
		}()
		body := `{"code":"guest_gone","text":"guest web is lost","epoch":3,"lost":true}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{"paris"}}}}
		r.SetPathValue("id", plan.ID)
		got, err := a.peerAbort(r)
		answer, _ := got.(talk.ReleaseAnswer)
		state := m.snapshot()
		if lost := status != vm.Completed; err != nil || lost != (answer.State == "declined") || lost != (state.Outcome == migration.Failed) || lost == state.Running() {
			t.Errorf("%s: %+v, %v; %+v", name, answer, err, state)
		}
		log.Close() //nolint:errcheck // of a test
	}
}

// TestLostGuestsNamesakeIsLeft: the journal of a guest that was lost has no guest of that name run on.
func TestLostGuestsNamesakeIsLeft(t *testing.T) {
	const id = "m-00000001"
	a := startedAgain(t)
	_, machine := haltedGuest(t, a, "web")
	state := endedAt(migration.AwaitLanding)
	state.Outcome = migration.Failed
	journalOf(t, a, id, journalled(id, "paris", state))
	begin(a)
	waitFor(t, "the journal goes", func() bool {
		ids, err := journal.Unfinished(a.config.StatePath("journal"))
		return err == nil && len(ids) == 0
	})
	if rep, ok, err := a.records.History(id); !ok || err != nil || rep.Outcome != migration.Failed || machine.runs.Load() > 0 {
		t.Errorf("history %v, %v, %s; continued %d times", ok, err, rep.Outcome, machine.runs.Load())
	}
}

// TestWhereALostGuestsDisksAre: as far as its source knows.
func TestWhereALostGuestsDisksAre(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	for want, released := range map[string]bool{": its disks are kept": false, "kept on both hosts if it ran on rome": true} {
		m := &outgoing{plan: plan, lost: true, guest: guests.New(care.Held{Description: config.Description{Disks: []vm.Disk{{ID: "vda"}}}}, nil), rec: record.New("paris", plan, time.Now())}
		if released {
			m.told.Store(new(sourceDoing(t, migration.Release)))
		}
		if err := m.pagesLost(7); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "last 7 of its pages") {
			t.Errorf("released %v: %v, want %q", released, err, want)
		}
	}
}
