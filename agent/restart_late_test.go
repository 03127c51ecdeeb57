package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/described"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/hook"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/clock"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm"
)

// silently makes a QEMU of guest web that lives, for who looks, and is none to talk to; end ends it.
func silently(t *testing.T, a *Agent) (h care.Held, end func()) {
	t.Helper()
	h = goodHeld(a.config.Run)
	h.Description.Start = []string{"qemu", "{dir}", "{qmp}"}
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(h.Dir, "qmp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return h, func() { ln.Close() }
}

// waitFor fails the test when something does not come to be.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestSilentGuestsHoldUpNobody: an agent that starts asks the QEMUs of all its guests at once, and those that take
// their time cost as long as one: here each has left a socket, at which somebody might listen soon.
func TestSilentGuestsHoldUpNobody(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome"})
	const guests = 20
	for n := range guests {
		h := goodHeld(a.config.Run)
		h.Description.Start = []string{"qemu", "{dir}", "{qmp}"}
		h.Description.Name = fmt.Sprint("web", n)
		h.Dir = a.guestDir(h.Description.Name, "1")
		if err := os.MkdirAll(h.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(h.Dir, "qmp.sock")})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
		if err := statefile.Write(filepath.Join(a.config.StatePath("guests"), h.Description.Name+".json"), h); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := described.Attach(t.Context(), care.Held{Dir: a.guestDir("web0", "1"), Description: config.Description{Start: []string{"qemu"}}})
		one := time.Since(begun)
		if !goneForSure(err) || one == 0 {
			t.Fatalf("after %v: %v", one, err)
		}
		begun = time.Now()
		if lost := a.readopt(t.Context()); len(lost) != guests || time.Since(begun) != one {
			t.Errorf("lost %d of %d, after %v, and one takes %v", len(lost), guests, time.Since(begun), one)
		}
	})
}

func unreadOf(a *Agent, id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unread[id]
}

// TestSilentQEMUIsWaitedFor: an agent that starts concludes nothing from a QEMU that does not
// answer. Its guest stays known, and a migration of it goes on when it answers or is gone.
func TestSilentQEMUIsWaitedFor(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "rome", To: "paris", Epoch: 4}
	source := func(at migration.Effect) any {
		return written.Source{Side: "source", Plan: plan, State: sourceDoing(t, at), Begun: 1, Doing: at}
	}
	p := goodPreparation()
	for _, c := range []struct {
		name   string
		kept   bool // it was under care
		record func(care.Held) any
		after  func(*Agent) bool // its QEMU is gone
	}{
		{"no migration", true, nil, func(a *Agent) bool {
			_, err := os.Stat(filepath.Join(a.config.StatePath("guests"), "web.json"))
			return os.IsNotExist(err)
		}},
		{"its source", true, func(care.Held) any { return source(migration.CopyMemory) }, func(a *Agent) bool {
			rep, ended := a.records.Report(plan.ID)
			return ended && rep.Outcome == migration.Failed
		}},
		{"its destination", false, func(h care.Held) any {
			p.Plan.ID = plan.ID
			return written.Destination{
				Side: "destination", Offer: talk.Offer{Plan: p.Plan, Description: p.Description}, Preparation: p, Held: h,
				State: migration.Destination{Landing: migration.Waiting, Epoch: 3, Released: true},
			}
		}, func(a *Agent) bool {
			a.mu.Lock()
			m := a.incoming[plan.ID]
			a.mu.Unlock()
			return m != nil && m.snapshot().Vanished
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := between(t)
			a.ctx, a.feed = t.Context(), newFeed()
			a.outgoing, a.incoming, a.records = map[string]*outgoing{}, map[string]*incoming{}, noRecords(a.config)
			var err error
			if a.detours, err = detour.Load(a.config.StatePath("detours.json"), config.Network{}); err != nil {
				t.Fatal(err)
			}
			a.metrics = newMetrics(a.config)
			a.hooks = hook.New(hook.Config{Dir: t.TempDir()}, a.log, a.hookNote, a.metrics.HookCalled)
			t.Cleanup(func() {
				a.actors.Wait() // they end with the test's context
				a.hooks.Close()
			})
			h, end := silently(t, a)
			if c.kept {
				if err := statefile.Write(filepath.Join(a.config.StatePath("guests"), "web.json"), h); err != nil {
					t.Fatal(err)
				}
			}
			if c.record != nil {
				journalOf(t, a, plan.ID, c.record(h))
			}
			a.resumeMigrations(t.Context(), a.readopt(t.Context()))
			d := &detour.Detour{
				ID: "m-00000007", Guest: "web", Peer: "paris", Leased: true, Until: clock.Now().Add(time.Hour), Visiting: []netstate.Visiting{{}},
				Tunnel: tunnel.Config{Name: "gwt-00000007", Dir: ends.Dir(a.config), Lease: clock.Now().Add(2 * config.DefaultLease)},
			}
			place(a, d)
			if err := a.lookAfter(t.Context(), *d); err != nil || placed(a, d.ID) == nil {
				t.Errorf("its detour was ended: %v", err)
			}
			displace(a, d.ID)
			if len(a.outgoing)+len(a.incoming) > 0 || c.record != nil && !strings.Contains(unreadOf(a, plan.ID), "does not answer") {
				t.Errorf("gone on with: %v, %v, %v", a.outgoing, a.incoming, a.unread)
			}
			if _, err := os.Stat(filepath.Join(a.config.StatePath("guests"), "web.json")); (err == nil) != c.kept {
				t.Errorf("what is remembered of it: %v", err)
			}
			if err := a.guests.Expect(guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)); err == nil {
				t.Error("another guest gets its name")
			}
			if _, unknown, err := a.guestsHere(); err != nil || len(unknown) != 1 || unknown[0].Name != "web" || unknown[0].Status != statusSilent {
				t.Errorf("it may run here, and who asks is told of %+v, %v", unknown, err)
			}
			end()
			waitFor(t, "it goes on", func() bool { return c.after(a) })
			if unreadOf(a, plan.ID) != "" {
				t.Error("it is said still that it waits")
			}
		})
	}
}

// TestStatusIsAskedOn: a QEMU that says nothing lives, and what it says later counts.
func TestStatusIsAskedOn(t *testing.T) {
	machine := &stuck{gone: gone{done: make(chan struct{})}, silent: 2}
	if status, err := statusOf(t.Context(), guests.New(care.Held{}, machine)); status != vm.Paused || err != nil {
		t.Errorf("%q, %v", status, err)
	}
	ended := &stuck{gone: gone{done: make(chan struct{})}, silent: 1 << 20}
	time.AfterFunc(latePause/2, func() { close(ended.done) })
	if status, err := statusOf(t.Context(), guests.New(care.Held{}, ended)); status != "" || err != nil {
		t.Errorf("%q, %v", status, err)
	}
	if status, err := statusOf(t.Context(), guests.New(care.Held{}, nil)); status != "" || err != nil {
		t.Errorf("%q, %v", status, err)
	}
}

// TestNoMachineIsWatched: a migration begins again without a QEMU, and ends by that, not by a panic.
func TestNoMachineIsWatched(t *testing.T) {
	m := &outgoing{a: &Agent{ctx: t.Context()}, guest: guests.New(care.Held{}, nil), work: &sourceWork{}}
	m.watchGuest()
}

// starving is a process that passes for the QEMU of guest web, one that waits for a page: it lives, and nobody can talk
// to it.
func starving(t *testing.T, a *Agent) (h care.Held, ended <-chan struct{}) {
	t.Helper()
	h = goodHeld(a.config.Run)
	return h, livesIn(t, h.Dir)
}

// livesIn is a process that passes for the QEMU of that directory, until somebody, or the test's end, ends it.
func livesIn(t *testing.T, dir string) (ended <-chan struct{}) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read never", "-pidfile", filepath.Join(dir, "pid"))
	cmd.Args[0] = "qemu-system-none"
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // it was killed
		close(over)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-over
	})
	need.Started(t, cmd)
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	return over
}

// TestTakenBackWhileItStarves: a guest that waits for pages here, under an agent that was started again, and was taken
// back meanwhile, is ended though its QEMU answers nobody; also one that was never let go. What else the source says
// waits for its answer.
func TestTakenBackWhileItStarves(t *testing.T) {
	for name, c := range map[string]struct {
		state migration.Destination
		said  migration.Input
		ends  bool
	}{
		"taken back":           {migration.Destination{Landing: migration.Adopting, Epoch: 3, Released: true, Loaded: true}, migration.Input{Kind: migration.Abort, Epoch: 4}, true},
		"given up by a person": {migration.Destination{Landing: migration.Waiting, Epoch: 3, Released: true}, migration.Input{Kind: migration.Disown}, true},
		"never let go":         {migration.Destination{Landing: migration.Waiting, Epoch: 3}, migration.Input{Kind: migration.Abort, Epoch: 3}, true},
		"let go":               {migration.Destination{Landing: migration.Waiting, Epoch: 3, Released: true}, migration.Input{Kind: migration.Abort, Epoch: 3}, false},
		"by an earlier right":  {migration.Destination{Landing: migration.Adopting, Epoch: 3, Released: true}, migration.Input{Kind: migration.Abort, Epoch: 2}, false},
		"let go once more":     {migration.Destination{Landing: migration.Waiting, Epoch: 3, Released: true}, migration.Input{Kind: migration.Released, Epoch: 3}, false},
		"asked for no refusal": {migration.Destination{Landing: migration.Waiting, Epoch: 3, Released: true}, migration.Input{Kind: migration.AskRefusal, Epoch: 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, p := awaiting(t)
			p.Description.Disks = nil
			h, ended := starving(t, a)
			log, err := journal.Create(a.config.StatePath("journal"), p.Plan.ID)
			if err != nil {
				t.Fatal(err)
			}
			p.Plan.Epoch = 3
			m := &incoming{
				a: a, offer: talk.Offer{Plan: p.Plan, Description: p.Description}, plan: p.Plan, log: log, state: c.state, wake: make(chan struct{}),
				rec: record.New("rome", p.Plan, a.clock()), inbox: make(chan migration.Input, 4), dir: h.Dir, work: &destinationWork{preparation: p},
			}
			m.ran.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a.ctx = ctx
			a.resumeStarving(m, h, 5)
			c.said.Problem = &migration.Problem{Code: migration.CodeAsked, Text: "taken back"}
			for range 6 { // more than the inbox holds
				if err := m.tell(t.Context(), c.said); err != nil {
					t.Fatal(err)
				}
			}
			if c.ends {
				select {
				case <-ended:
				case <-time.After(10 * time.Second):
					t.Fatal("its QEMU lives")
				}
				waitFor(t, "it is declined", func() bool { return m.snapshot().Refused() })
			} else {
				select {
				case <-ended:
					t.Fatal("its QEMU was ended")
				case <-time.After(300 * time.Millisecond):
				}
			}
			cancel()
			a.actors.Wait()
		})
	}
}

// TestKeptWhileItStarved: an agent that is started again between handover and last page knows that the guest has kept
// its old address for who needs it, and leads that here on.
func TestKeptWhileItStarved(t *testing.T) {
	a, p := awaiting(t)
	p.Description.Disks = nil
	old, next := migration.Address{Prefix: netip.MustParsePrefix("10.1.1.10/24")}, migration.Address{Prefix: netip.MustParsePrefix("10.2.1.10/24")}
	p.Plan.Network, p.Plan.Held, p.Plan.Next = "mptcp", []migration.Address{old}, []migration.Address{next}
	h := goodHeld(a.config.Run) // its QEMU is gone: nobody waits for it
	h.Addresses = []migration.Address{next, old}
	log, err := journal.Create(a.config.StatePath("journal"), p.Plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := &incoming{
		a: a, offer: talk.Offer{Plan: p.Plan, Description: p.Description}, plan: p.Plan, log: log, wake: make(chan struct{}),
		state: migration.Destination{Landing: migration.Leaving, Epoch: p.Plan.Epoch, Released: true, Loaded: true},
		rec:   record.New("rome", p.Plan, a.clock()), inbox: make(chan migration.Input, 4), dir: h.Dir, work: &destinationWork{preparation: p},
	}
	ctx, cancel := context.WithCancel(t.Context())
	a.ctx = ctx
	a.resumeStarving(m, h, 5)
	waitFor(t, "the guest is found", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.work.guest != nil
	})
	cancel()
	a.actors.Wait()
	if !m.work.keepsOld || m.plan.KeepsAddress() {
		t.Errorf("kept %v, for good %v", m.work.keepsOld, m.plan.KeepsAddress())
	}
}
