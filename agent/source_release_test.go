package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

var loopback = peertest.Loopback

// linked is a link from one host to another whose agent answers by handler.
func linked(t *testing.T, from, to string, handler http.Handler) *peer.Link {
	t.Helper()
	return peertest.Link(t, from, to, handler, func(*peer.Stream) {})
}

// TestDoubtIsNotAskedInAHotLoop: a destination that answers at once that it cannot say more,
// as it may for as long as nobody decides, is asked on at leisure.
func TestDoubtIsNotAskedInAHotLoop(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	a.ctx, a.feed = t.Context(), newFeed()
	var err error
	if a.detours, err = detour.Load(a.config.StatePath("detours.json"), config.Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		peer.Answer(w, talk.ReleaseAnswer{State: "waiting", Vanished: "its QEMU is gone"}, nil)
	}))
	m := &outgoing{
		a: a, guest: guests.New(care.Held{}, nil), link: link, plan: plan, log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()),
		inbox: make(chan migration.Input, 1), state: migration.Source{Course: migration.Forward, Epoch: 2},
	}
	for m.state.Doing() != migration.Release {
		m.state.At++
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx, migration.Input{Kind: migration.Restarted})
	}()
	for asked.Load() < 2 { // it does ask on
		time.Sleep(time.Millisecond)
	}
	before := asked.Load()
	time.Sleep(4 * repairPause)
	if n := asked.Load() - before; n > 10 {
		t.Errorf("asked %d times in %v", n, 4*repairPause)
	}
	end()
	<-ended
}

// TestRefusalWithoutAReason: a destination that refuses and does not say why, or says more than a line, has the guest
// run on here all the same; one that answers at once that it waits is not asked in a hot loop.
func TestRefusalWithoutAReason(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	long := &migration.Problem{Code: "?", Text: strings.Repeat("a line\n", 1<<16)}
	var asked atomic.Int32
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch what := path.Base(r.URL.Path); {
		case what == "landed":
			peer.Answer(w, talk.LandedAnswer{Report: record.Report{Outcome: migration.Aborted}}, nil)
		case what == "release" && asked.Add(1) == 1:
			peer.Answer(w, talk.ReleaseAnswer{State: "waiting"}, nil)
		case what == "release" && asked.Load() == 2:
			peer.Answer(w, talk.ReleaseAnswer{State: "declined"}, nil)
		default:
			peer.Answer(w, talk.ReleaseAnswer{State: "declined", Problem: long}, nil)
		}
	}))
	for _, at := range []migration.Effect{migration.Release, migration.Release, migration.AwaitLanding} {
		m := &outgoing{
			a: bareAgent(t, &config.Config{Host: "paris", Patience: time.Minute}), guest: guests.New(care.Held{}, nil), link: link, plan: plan,
			work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), state: sourceDoing(t, at),
		}
		m.a.ctx = t.Context()
		begun, err := time.Now(), error(nil)
		if at == migration.Release {
			err = m.askRelease(t.Context(), &talk.ReleaseAnswer{}, make(chan struct{}))
		} else {
			err = m.askLanded(t.Context())
		}
		in := m.verdict(at, err)
		if in.Kind != migration.Declined || in.Problem == nil || in.Problem.Text == "" || len(in.Problem.Text) > 4000 || strings.Contains(in.Problem.Text, "\n") {
			t.Fatalf("%s: %+v", at, in)
		}
		if _, _, err := m.state.Step(in); err != nil {
			t.Error(err)
		}
		if asked.Load() == 2 && at == migration.Release && time.Since(begun) < repairPause {
			t.Errorf("asked again after %v", time.Since(begun))
		}
	}
}

// TestPatienceAfterTheRelease: a destination that has the release, and to which nothing moves any
// more, is asked to refuse, so that the guest does not stand still for ever.
func TestPatienceAfterTheRelease(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris", Patience: 50 * time.Millisecond})
	a.ctx = t.Context()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	var refusal atomic.Bool
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/abort"):
			var ask talk.Undo
			if err := peer.Decode(r, &ask); err != nil || !ask.Released || ask.Epoch != 2 {
				t.Errorf("%+v, %v", ask, err)
			}
			refusal.Store(true)
			peer.Answer(w, talk.ReleaseAnswer{}, nil)
		case refusal.Load():
			peer.Answer(w, talk.ReleaseAnswer{State: "declined", Problem: &migration.Problem{Code: migration.CodeHypervisor, Text: "no"}}, nil)
		default:
			time.Sleep(5 * time.Millisecond)
			peer.Answer(w, talk.ReleaseAnswer{State: "waiting"}, nil)
		}
	}))
	m := &outgoing{a: a, guest: guests.New(care.Held{}, nil), link: link, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	m.told.Store(&migration.Source{Epoch: plan.Epoch})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
	defer cancel()
	var answer talk.ReleaseAnswer
	if err := m.askRelease(ctx, &answer, nil); !errors.Is(err, errDeclined) {
		t.Errorf("%v, %+v", err, answer)
	}
}

// TestSilenceAfterTheReleaseIsDoubt: a destination that had the release, and says nothing any more when it is asked
// whether it could run the guest, or to refuse it, is a doubt, which people and metrics are told of.
func TestSilenceAfterTheReleaseIsDoubt(t *testing.T) {
	for mode, what := range map[string]string{"hybrid": "/landing", "precopy": "/abort"} {
		for _, lost := range []bool{false, true} { // the guest's QEMU here
			t.Run(mode, func(t *testing.T) { silentAfterTheRelease(t, mode, what, lost) })
		}
	}
}

func silentAfterTheRelease(t *testing.T, mode, what string, lost bool) {
	release, inquire := limits.Release.For, limits.Inquire.For
	defer func() { limits.Release.For, limits.Inquire.For = release, inquire }()
	limits.Release.For, limits.Inquire.For = 200*time.Millisecond, 100*time.Millisecond
	a := bareAgent(t, &config.Config{Host: "paris", Patience: 50 * time.Millisecond})
	a.ctx = t.Context()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Mode: mode, Transfer: "lanes"}
	var silent atomic.Bool
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, what) {
			silent.Store(true)
		}
		if silent.Load() {
			<-r.Context().Done()
			return
		}
		time.Sleep(5 * time.Millisecond)
		peer.Answer(w, talk.ReleaseAnswer{State: "waiting"}, nil)
	}))
	m := &outgoing{
		a: a, guest: guests.New(care.Held{}, nil), link: link, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), state: sourceDoing(t, migration.Release), lost: lost,
	}
	told := m.state
	m.told.Store(&told)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
	defer cancel()
	if err := m.askRelease(ctx, &talk.ReleaseAnswer{}, nil); !errors.Is(err, errSilent) {
		t.Errorf("%v, and it was silent: %v", err, silent.Load())
	}
}

// TestReleaseFeedsAGuestThatWaitsForPages: an agent that is started again where a guest may run, and whose QEMU answers
// nobody before a page comes, cannot say so: the page is sent while the release is asked for. One whose QEMU
// answers, and one that has the lanes still, is sent nothing.
func TestReleaseFeedsAGuestThatWaitsForPages(t *testing.T) {
	for name, c := range map[string]struct {
		mode    string
		landing talk.LandingAnswer
		fed     bool
	}{
		"it waits for a page": {"hybrid", talk.LandingAnswer{Landing: migration.Waiting}, true},
		"its QEMU answers":    {"hybrid", talk.LandingAnswer{Landing: migration.Waiting, Status: vm.Incoming}, false},
		"it was started":      {"postcopy", talk.LandingAnswer{Landing: migration.Starting}, true},
		"it is given up":      {"postcopy", talk.LandingAnswer{Landing: migration.Declining}, false},
		"no page can miss":    {"precopy", talk.LandingAnswer{Landing: migration.Waiting}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := bareAgent(t, &config.Config{Host: "paris", Patience: time.Minute})
			a.ctx = t.Context()
			plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Mode: c.mode, Transfer: "lanes"}
			var asked, fed atomic.Int32
			link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/landing"):
					peer.Answer(w, c.landing, nil)
				case strings.HasSuffix(r.URL.Path, "/refill"):
					fed.Add(1)
					peer.Answer(w, talk.RefillAnswer{State: talk.RefillWhole}, nil)
				case fed.Load() > 0 || !c.fed && asked.Add(1) > 3:
					peer.Answer(w, talk.ReleaseAnswer{State: "running"}, nil)
				default:
					time.Sleep(5 * time.Millisecond)
					peer.Answer(w, talk.ReleaseAnswer{State: "waiting"}, nil)
				}
			}))
			m := &outgoing{
				a: a, guest: guests.New(care.Held{}, runs{gone{done: make(chan struct{})}}), link: link, plan: plan,
				work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), state: migration.Source{Course: migration.Forward, Epoch: 2},
			}
			followed := make(chan struct{})
			close(followed)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
			defer cancel()
			var answer talk.ReleaseAnswer
			if err := m.askRelease(ctx, &answer, followed); err != nil || answer.State != "running" {
				t.Errorf("%v, %+v", err, answer)
			}
			if (fed.Load() > 0) != c.fed {
				t.Errorf("asked to go on %d times", fed.Load())
			}
		})
	}
}

// TestWhatIsNotWrittenIsToldAgain: that a guest could not be started must come to be said, though
// the journal does not take it at first.
func TestWhatIsNotWrittenIsToldAgain(t *testing.T) {
	for kind, again := range map[migration.InputKind]bool{migration.Fault: true, migration.AskRefusal: false} {
		a := between(t)
		a.config.Peers = nil // its source is not asked
		var said atomic.Int32
		a.log = slog.New(refusals{slog.DiscardHandler, &said})
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		m := &incoming{
			a: a, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}),
			work: &destinationWork{}, state: migration.Destination{Landing: migration.Waiting, Epoch: 2}, inbox: make(chan migration.Input, 1),
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.run(ctx, migration.Input{Kind: kind, Problem: &migration.Problem{Code: migration.CodeHypervisor, Text: "tried"}})
		}()
		waitFor(t, "it is told", func() bool { return said.Load() > 0 })
		if again {
			waitFor(t, "it is told again", func() bool { return said.Load() > 1 })
		} else if time.Sleep(2 * endAgain); said.Load() != 1 {
			t.Errorf("%s: told %d times", kind, said.Load())
		}
		end()
		<-ended
	}
}

// refusals counts how often it is said that something could not be journalled.
type refusals struct {
	slog.Handler
	said *atomic.Int32
}

func (refusals) Enabled(context.Context, slog.Level) bool { return true }

func (c refusals) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(at slog.Attr) bool {
		if err, ok := at.Value.Any().(error); ok && errors.Is(err, errUnwritten) {
			c.said.Add(1)
		}
		return true
	})
	return nil
}

// TestBeginsAgainWhenAllIsUndone: a migration that is to begin again waits for a destination that takes its time to
// undo, as one whose QEMU has much memory to give back: else it would end instead.
func TestBeginsAgainWhenAllIsUndone(t *testing.T) {
	for _, again := range []bool{true, false} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		a.ctx = t.Context()
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		var asked atomic.Int32
		link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case asked.Add(1) > 1:
			case again:
				sleep(r.Context(), limits.UndoThere.For+300*time.Millisecond)
			default:
				<-r.Context().Done()
			}
			peer.Answer(w, talk.ReleaseAnswer{State: "declined"}, nil)
		}))
		m := &outgoing{
			a: a, plan: plan, link: link, rec: record.New("paris", plan, time.Now()), work: &sourceWork{},
			state: migration.Source{Course: migration.Undoing, Undo: []migration.Effect{migration.UndoPrepareThere}, Epoch: 2, Again: again},
		}
		if err := m.askAbort(t.Context()); (err == nil) != again {
			t.Errorf("to begin again %v: %v", again, err)
		}
		a.actors.Wait()
	}
}

// TestSaysWhetherItLed: a destination is told whether packets were led to it, as this end of the tunnel is gone first
// where they were not.
func TestSaysWhetherItLed(t *testing.T) {
	for doing, unled := range map[migration.Effect]bool{migration.CopyMemory: true, migration.Flip: false} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		a.ctx = t.Context()
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		var asked talk.Undo
		link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := peer.Decode(r, &asked); err != nil {
				t.Error(err)
			}
			peer.Answer(w, talk.ReleaseAnswer{State: "declined"}, nil)
		}))
		m := &outgoing{a: a, plan: plan, link: link, rec: record.New("paris", plan, time.Now()), work: &sourceWork{}, state: sourceDoing(t, doing)}
		if err := m.askAbort(t.Context()); err != nil || asked.Unled != unled {
			t.Errorf("%s: %+v, %v", doing, asked, err)
		}
	}
}
