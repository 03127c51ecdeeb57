package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/hook"
	"godwit/agent/journal"
	"godwit/agent/owed"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/vm"
)

// goneMachine is a QEMU that was found, and has ended since.
type goneMachine struct{ vm.Machine }

func (goneMachine) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// TestSourceRestarted: within the switch, only a QEMU that is gone for sure makes a source go on
// as if it had let go; one that does not answer may run the guest.
func TestSourceRestarted(t *testing.T) {
	dir := t.TempDir()
	detours, err := detour.Load(dir+"/detours.json", config.Network{})
	if err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	for _, test := range []struct {
		name    string
		machine vm.Machine
		lost    bool
		goesOn  bool
	}{
		{name: "gone with its host", lost: true, goesOn: true},
		{name: "gone since the agent began", machine: goneMachine{}, goesOn: true},
		{name: "does not answer"},
	} {
		for _, at := range []migration.Effect{migration.CopyMemory, migration.Flip, migration.Pause, migration.Release} {
			state := sourceDoing(t, at)
			m := &outgoing{
				a:     &Agent{config: &config.Config{Host: "paris", State: dir}, detours: detours, ctx: t.Context()},
				guest: guests.New(care.Held{}, test.machine), plan: plan, state: state, rec: record.New("paris", plan, time.Now()),
			}
			next, _, err := state.Step(m.restarted(test.lost))
			if err != nil {
				t.Fatal(err)
			}
			want := at == migration.Release || test.goesOn && at != migration.CopyMemory
			if next.Released() != want {
				t.Errorf("%s, in %s: let go %v, want %v", test.name, at, next.Released(), want)
			}
		}
	}
}

// startedAgain is rome as it starts: it has journals, hooks and metrics, and what it does ends with the test.
func startedAgain(t *testing.T) *Agent {
	t.Helper()
	a := between(t)
	var end context.CancelFunc
	a.ctx, end = context.WithCancel(t.Context())
	a.feed, a.metrics = newFeed(), newMetrics(a.config)
	a.hooks = hook.New(hook.Config{Dir: t.TempDir()}, a.log, a.hookNote, a.metrics.HookCalled)
	t.Cleanup(func() { end(); a.actors.Wait(); a.hooks.Close() })
	return a
}

// halted is a QEMU that an agent finds again, and whose guest is paused.
type halted struct{ stuck }

func (h *halted) Stop(context.Context) error            { h.runs.Store(0); return nil }
func (*halted) Events(context.Context) <-chan vm.Event  { return nil }
func (*halted) CancelMigration(context.Context) error   { return nil }
func (*halted) ReleaseSwitchover(context.Context) error { return nil }
func (*halted) Progress(context.Context) (vm.Progress, error) {
	return vm.Progress{}, errors.New("no migration")
}
func (*halted) AwaitMigration(ctx context.Context) (vm.Progress, error) {
	<-ctx.Done()
	return vm.Progress{}, ctx.Err()
}

// haltedGuest is a guest under care of that name, whose QEMU is halted.
func haltedGuest(t *testing.T, a *Agent, name string) (*guests.Guest, *halted) {
	machine := &halted{stuck{gone: gone{done: make(chan struct{})}}}
	g := guests.New(care.Held{Description: config.Description{Name: name}, Dir: a.guestDir(name, "1"), Epoch: 1}, machine)
	underCare(t, a.guests, name, g)
	return g, machine
}

// journalled is what a source that has come so far has in its journal.
func journalled(id, to string, state migration.Source) written.Source {
	plan := migration.Plan{ID: id, Guest: "web", From: "rome", To: to, Epoch: 2}
	return written.Source{Side: "source", Plan: plan, State: state, Begun: 1, Doing: state.Reached()}
}

// factless is one that does not say what it is.
type factless struct{ *halted }

func (factless) Facts(context.Context) (vm.Facts, error) { return vm.Facts{}, errors.New("no facts") }

// TestModeOfTheNextTry: a migration whose agent was killed begins again with the mode that was asked for, so that auto
// may be another this time, and turn out to be hybrid as late as before; or with the one that it was to begin again
// with.
func TestModeOfTheNextTry(t *testing.T) {
	for next, want := range map[string]string{"auto": "auto", "hybrid": "hybrid", "": "precopy"} {
		a := startedAgain(t)
		g, machine := haltedGuest(t, a, "web")
		g.RunsIn(factless{machine})
		j := journalled("m-00000001", "berlin", sourceDoing(t, migration.AskStart))
		j.Plan.Mode, j.Next = "precopy", next
		journalOf(t, a, "m-00000001", j)
		a.resumeMigrations(a.ctx, nil)
		a.actors.Wait()
		if rep, ok, err := a.records.History("m-00000001"); !ok || err != nil || rep.Epoch != 3 || rep.Mode != want {
			t.Errorf("%q: epoch %d, mode %q, want %q (%v, %v)", next, rep.Epoch, rep.Mode, want, ok, err)
		}
	}
}

// TestPeerNotConfiguredAnyMore: where the destination is not in the configuration any more, a guest
// that was never let go runs on, and one that was is asked about on.
func TestPeerNotConfiguredAnyMore(t *testing.T) {
	for at, stays := range map[migration.Effect]bool{migration.Pause: true, migration.Release: false} {
		a := startedAgain(t)
		g, machine := haltedGuest(t, a, "web")
		journalOf(t, a, "m-00000001", journalled("m-00000001", "berlin", sourceDoing(t, at)))
		a.resumeMigrations(a.ctx, nil)
		if stays {
			a.actors.Wait()
			if rep, ok, err := a.records.History("m-00000001"); !ok || err != nil || rep.Outcome != migration.Aborted || g.Migration() != "" {
				t.Errorf("history: %+v, %v, %v; left alone: %v; busy with %q", rep, ok, err, a.unread, g.Migration())
			}
		} else {
			waitFor(t, "it is in doubt", func() bool { rep, ok := a.records.Report("m-00000001"); return ok && rep.Outcome == migration.InDoubt })
		}
		if runs := machine.runs.Load() > 0; runs != stays {
			t.Errorf("%s: continued: %v", at, runs)
		}
	}
}

// sourceDoing is a source that has come to an effect.
func sourceDoing(t *testing.T, at migration.Effect) migration.Source {
	t.Helper()
	s, _, err := migration.Source{}.Step(migration.Input{Kind: migration.Start, Epoch: 2})
	for err == nil && s.Doing() != at {
		s, _, err = s.Step(migration.Input{Kind: migration.Done})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestJournalTakesNothing: what cannot be written down is not done, but for turning back.
func TestJournalTakesNothing(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	for _, test := range []struct {
		at   migration.Effect
		in   migration.InputKind
		want migration.Effect // what is done next
	}{
		{migration.AskSuspend, migration.Done, migration.UndoCopyMemory}, // the switch does not begin
		{migration.Pause, migration.Done, migration.Resume},              // the guest is not let go
		{migration.Pause, migration.Abort, migration.Resume},
		{migration.Release, migration.Declined, migration.Resume},
	} {
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		m := &outgoing{
			a:    &Agent{config: &config.Config{Host: "paris"}, log: slog.New(slog.DiscardHandler)},
			plan: plan, state: sourceDoing(t, test.at), log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()),
		}
		effects, err := m.step(migration.Input{Kind: test.in, Problem: &migration.Problem{Code: migration.CodeAsked, Text: "why"}})
		if err != nil || len(effects) != 1 || effects[0] != test.want || m.state.Course != migration.Undoing {
			t.Errorf("%s in %s: %v, %v, %s; want %s", test.in, test.at, effects, err, m.state.Course, test.want)
		}
	}
}

// linesWritten counts what is logged.
type linesWritten struct{ n chan struct{} }

func (l linesWritten) Write(p []byte) (int, error) {
	select {
	case l.n <- struct{}{}:
	default:
	}
	return len(p), nil
}

// TestLostGuestIsNotTakenForHeld: a source whose guest was lost with its host in the switch may have let it go. Where
// that cannot be written down, it does nothing else either: it would tell the destination that it never let go, which
// then removes what the guest wrote there.
func TestLostGuestIsNotTakenForHeld(t *testing.T) {
	for _, at := range []migration.Effect{migration.Flip, migration.Pause} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		said := linesWritten{make(chan struct{})}
		a.ctx, a.log, a.detours = t.Context(), slog.New(slog.NewTextHandler(said, nil)), detour.New("", config.Network{}, map[string]*detour.Detour{})
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil { // it takes nothing
			t.Fatal(err)
		}
		link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t.Errorf("%s: the destination is told %s", at, r.URL.Path)
			peer.Answer(w, talk.ReleaseAnswer{State: "declined"}, nil)
		}))
		m := &outgoing{
			a: a, guest: guests.New(care.Held{}, nil), plan: plan, link: link, state: sourceDoing(t, at), log: log, lost: true, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()),
			inbox: make(chan migration.Input, 1),
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.run(ctx, migration.Input{Kind: migration.Restarted, Problem: goneProblem("web", "was lost")})
		}()
		for range 3 { // it is tried again
			select {
			case <-said.n:
			case <-ended:
			}
		}
		end()
		<-ended
		if m.state.Course != migration.Forward || m.state.Reached() != at {
			t.Errorf("%s: %+v", at, m.state)
		}
		m.state = sourceDoing(t, migration.Release) // as was written before: it asks on
		if effects, err := m.step(migration.Input{Kind: migration.Restarted}); err != nil || len(effects) != 1 || effects[0] != migration.Release {
			t.Errorf("let go, and started again: %v, %v", effects, err)
		}
	}
}

// TestStaysAwayThoughRestarted: where the destination is gone, a source that was started again tells the subnet agent
// itself that the guest did not come home.
func TestStaysAwayThoughRestarted(t *testing.T) {
	addr := netip.MustParseAddr("10.3.1.20")
	a := startedAgain(t)
	told := make(chan detour.GiveBack, 1)
	a.owedWords = &owed.Words{Ctx: a.ctx, Dir: t.TempDir(), Log: a.log.Warn, Go: a.actors.Go, Ask: func(_ context.Context, host string, ask detour.GiveBack) error {
		if host == "oslo" {
			told <- ask
		}
		return nil
	}}
	g, _ := haltedGuest(t, a, "web")
	g.Remember(func(h *care.Held) { h.Description.NICs = []config.NIC{{MAC: "52:54:00:00:00:01"}} })
	j := journalled("m-00000001", "berlin", sourceDoing(t, migration.Pause)) // berlin is not configured, and oslo's subnet agent gave it the address
	j.Plan.Held = []migration.Address{{Prefix: netip.PrefixFrom(addr, 24), Home: "oslo", SubnetAgent: "oslo"}}
	j.Coming, j.Home = true, []netip.Addr{addr}
	journalOf(t, a, "m-00000001", j)
	a.resumeMigrations(a.ctx, nil)
	a.actors.Wait()
	select {
	case ask := <-told:
		if ask.Step != detour.BackAway || len(ask.Addresses) != 1 || ask.Addresses[0].Addr != addr {
			t.Errorf("told: %+v", ask)
		}
	default:
		t.Error("nobody told the subnet agent")
	}
}
