package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
	"godwit/vm/guest"
)

// cutAtFlip is a migration whose lanes are cut as its switch begins, over paths that it shares; they are back once that
// is closed. Its QEMU's copy goes on, and its destination answers by handler.
func cutAtFlip(t *testing.T, qemu vm.Machine, back <-chan struct{}, shared []peer.Path, handler http.Handler) *outgoing {
	t.Helper()
	limit := limits.Settle
	limits.Settle.For = time.Millisecond
	t.Cleanup(func() { limits.Settle = limit })
	soonAgain(t)
	m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.a.config.Patience = time.Hour
	m.a.rightOfWay.Join(m.plan.ID, shared, func(int64) {})
	m.guest.RunsIn(qemu)
	laned(t, m, back)
	m.link = peertest.Link(t, "paris", n.Host, handler, nil)
	m.a.ctx = t.Context()
	m.setState(sourceDoing(t, migration.Flip))
	return m
}

// soonAgain has a switch tried again as soon as a lane is ready.
func soonAgain(t *testing.T) {
	pause := flipAgain
	flipAgain = time.Millisecond
	t.Cleanup(func() { flipAgain = pause })
}

// looked is a QEMU whose copy goes on, and that tells of each look at it.
type looked struct {
	halted
	look func()
}

func (l *looked) Progress(context.Context) (vm.Progress, error) {
	l.look()
	return vm.Progress{Status: vm.Active, Rounds: 2}, nil
}

func (*looked) Status(context.Context) (vm.Status, error) { return vm.Running, nil }

// TestCopyOnGivesWay: others over the same uplinks give way to a guest that is about to be stopped, and not while it
// runs on, and is copied.
func TestCopyOnGivesWay(t *testing.T) {
	shared := []peer.Path{{Local: loopback, Rate: 100e6}}
	var limited int64
	var seen []int64
	back, looks := make(chan struct{}), 0
	m := cutAtFlip(t, &looked{halted{stuck{gone: gone{done: make(chan struct{})}}}, func() {
		seen = append(seen, limited)
		if looks++; looks == 5 {
			close(back)
		}
	}}, back, shared, present)
	m.a.rightOfWay.Join("m-00000002", shared, func(bits int64) { limited = bits })
	m.flip(t.Context())         //nolint:errcheck // there is no detour
	got := slices.Compact(seen) // a lane may be silent again, on a busy machine
	if len(got) < 3 || got[0] != 10e6 || got[1] != 0 || got[len(got)-1] != 10e6 {
		t.Errorf("another was limited to %v", got)
	}
}

// TestCopyOnTellsNobody: clients are told of the guest's next address as it leaves, once, and by what the destination
// has heard of then; not where no lane carries its memory.
func TestCopyOnTellsNobody(t *testing.T) {
	limit := limits.Expect
	limits.Expect.For = time.Minute
	t.Cleanup(func() { limits.Expect = limit })
	back, looks, early, asked := make(chan struct{}), 0, 0, make(chan string, 9)
	qemu := &looked{halted{stuck{gone: gone{done: make(chan struct{})}}}, func() {
		if looks++; looks == 5 {
			early = len(asked)
			close(back)
		}
	}}
	expects := make(chan string, 9)
	m := cutAtFlip(t, qemu, back, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expects <- r.URL.Path
		json.NewEncoder(w).Encode(talk.ExpectAnswer{Free: true}) //nolint:errcheck // the call fails then
	}))
	m.guest = twoNICGuest(teller{asked: asked})
	m.guest.RunsIn(qemu)
	m.plan.Next = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.10/24"), Endpoint: 3}}
	m.work.capabilities, m.work.accepted = []string{guest.CapTell}, talk.Acceptance{Expects: true}
	m.askAhead()
	m.flip(t.Context()) //nolint:errcheck // there is no detour
	if early > 0 || len(asked) != 1 || len(expects) < 2 {
		t.Errorf("the guest was to tell its clients %d times while it was copied on, %d in all; the destination was asked %d times", early, len(asked), len(expects))
	}
}

// TestCopyOnKeepsTheReport: an agent that is killed after a copy which went on in the switch leaves to the next what
// the report had come to, and what was written down meanwhile is no step of the guest's switch.
func TestCopyOnKeepsTheReport(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	dir := t.TempDir()
	log, err := journal.Create(dir, m.plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the test ends
	m.log, m.state = log, sourceDoing(t, migration.AskSuspend)
	m.rec.Note("seen before the switch")
	m.beginWire()
	for _, done := range []migration.Effect{migration.AskSuspend, migration.Flip, migration.Pause} {
		if _, err := m.step(migration.Input{Kind: migration.Done, Effect: done}); err != nil {
			t.Fatal(err)
		}
		if done == migration.AskSuspend {
			for range 3 { // as often as the copy is long
				m.work.wireTold.last = time.Time{}
				m.rec.Edit(func(r *record.Report) { r.Rounds++ })
				m.keepWire()
			}
		}
	}
	var j written.Source
	if err := journal.Read(dir, m.plan.ID, &j); err != nil {
		t.Fatal(err)
	}
	var kept record.Report
	if err := json.Unmarshal(j.Report, &kept); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(kept.Notes, "seen before the switch") || kept.Rounds != 3 || len(kept.Phases) == 0 {
		t.Errorf("the record of letting go has notes %q, %d rounds, phases %v", kept.Notes, kept.Rounds, kept.Phases)
	}
	if got, want := steps(m), []string{"journal: flip begins", "journal: pause begins", "journal: let go"}; !slices.Equal(got, want) {
		t.Errorf("steps %q, want %q", got, want)
	}
}

// TestFlipIsNotTriedForGood: a switch that begins again and again, and comes to nothing each time, is given up after
// six tries, between which it waits for longer and longer, and not before, however long the copy takes between them.
func TestFlipIsNotTriedForGood(t *testing.T) {
	for _, c := range []struct {
		look time.Duration // what each takes
		said string
	}{{0, "6 times in 31s"}, {20 * time.Second, "6 times in 5m0s"}} {
		m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer, m.a.config.Patience = "qemu-tcp", time.Hour
		m.a.detours = detour.New("", config.Network{}, nil)
		var said bytes.Buffer
		m.a.log = slog.New(slog.NewTextHandler(&said, nil))
		synctest.Test(t, func(t *testing.T) {
			m.guest.RunsIn(&looked{halted{stuck{gone: gone{done: make(chan struct{})}}}, func() { time.Sleep(c.look) }})
			m.a.ctx = t.Context()
			agenttest.Refused(t, c.said, m.flip(t.Context()), migration.CodePeer, c.said, "could not go: rome did not answer", "no path to rome is configured")
			if slices.Contains(steps(m), "flip route") {
				t.Errorf("%s: %v", c.said, steps(m))
			}
			if !strings.Contains(said.String(), `error="rome did not answer; `) {
				t.Errorf("the log has %s", said.String())
			}
		})
	}
}

// TestSteady: lanes that were ready for a while, and were silent for a moment, are asked for all of it again.
func TestSteady(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	may := make(chan struct{})
	if laned(t, m, may); m.steady() {
		t.Error("steady, and no lane was ever open")
	}
	m.work.steadiness = steadiness{asked: time.Hour, since: time.Now().Add(-time.Minute)}
	if m.steady() || !m.work.steadiness.since.IsZero() {
		t.Errorf("it goes on: %+v", m.work.steadiness)
	}
	close(may)
	m.work.steadiness = steadiness{}
	waitFor(t, "a lane is ready", m.steady)
	if m.work.steadiness.asked = time.Hour; m.steady() {
		t.Error("steady for an hour")
	}
}

// TestSteadyEnough: a lane that comes and goes beside one that works does not keep a guest from being stopped for good,
// and one that is back after a long cut is waited for anew.
func TestSteadyEnough(t *testing.T) {
	const asked = 4 * time.Second
	for name, c := range map[string]struct {
		ready, works func(at time.Duration) bool
		after        time.Duration
	}{
		"always ready":                   {func(time.Duration) bool { return true }, func(time.Duration) bool { return true }, asked},
		"one is silent 1 s of every 3 s": {func(at time.Duration) bool { return at%(3*time.Second) < 2*time.Second }, func(time.Duration) bool { return true }, steadyMost * asked},
		"back after a minute":            {func(at time.Duration) bool { return at >= time.Minute }, func(at time.Duration) bool { return at >= time.Minute }, time.Minute + asked},
	} {
		s, begun := steadiness{asked: asked}, time.Now()
		at := time.Duration(0)
		for at < 2*time.Minute && !s.see(begun.Add(at), c.ready(at), c.works(at)) {
			at += lookEvery
		}
		if at != c.after {
			t.Errorf("%s: steady after %v, not after %v", name, at, c.after)
		}
	}
}

// TestRoundsOfACut: those that QEMU began and ended while paths were cut do not look as if they had taken no time.
func TestRoundsOfACut(t *testing.T) {
	m, _ := budgeted(t, "postcopy", 300*time.Millisecond, 20*time.Millisecond)
	clock, now := policy.Clock{}, time.Now()
	m.copyTime(&clock, now, true)
	look := func(after time.Duration, counts bool) time.Duration {
		now = now.Add(after)
		return m.copyTime(&clock, now, counts)
	}
	m.work.rounds.See(look(time.Second, true), 3)
	look(8*time.Second, false)
	at := look(lookEvery, true)
	m.work.rounds.See(at, 7)
	if at != time.Second+lookEvery || m.work.rounds.Enough(at, m.plan.Downtime) {
		t.Errorf("enough at %v: %+v", at, m.work.rounds)
	}
}
