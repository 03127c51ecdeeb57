package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// stands is a machine that stays as its guest ends.
type stands struct {
	runs
	events chan vm.Event
	status atomic.Value
}

func standing(status vm.Status) *stands {
	s := &stands{runs: runs{gone{done: make(chan struct{})}}, events: make(chan vm.Event, 2)}
	s.status.Store(status)
	return s
}

func (s *stands) GuestChannel() string                      { return "" }
func (s *stands) Announce(context.Context) error            { return nil }
func (s *stands) Events(context.Context) <-chan vm.Event    { return s.events }
func (s *stands) Status(context.Context) (vm.Status, error) { return s.status.Load().(vm.Status), nil }

// TestHandoverOfAGuestThatStands: one that ends in a QEMU which stays, before the handover or as it is asked for its
// next address, is not waited for, and stays under care; how it ended is told once.
func TestHandoverOfAGuestThatStands(t *testing.T) {
	for name, c := range map[string]struct {
		before, then vm.Status
		says         string
	}{
		"panicked before":       {vm.Panicked, vm.Panicked, "guest web panicked on rome"},
		"shut down before":      {vm.Shutdown, vm.Shutdown, "guest web was shut down on rome"},
		"panics as it is asked": {vm.Running, vm.Panicked, "guest web panicked on rome"},
		"breaks as it is asked": {vm.Running, vm.InternalError, "guest web broke on rome"},
	} {
		machine := standing(c.before)
		m := landing(t, talking(t, map[string]guest.Handler{
			"configure": func(ctx context.Context, _ string, _ json.RawMessage) (any, error) {
				machine.status.Store(c.then)
				machine.events <- vm.Event{Name: "STOP"}
				<-ctx.Done() // nobody answers
				return nil, ctx.Err()
			},
		}))
		m.plan.To = "rome"
		m.work.guest.RunsIn(machine)
		if err := m.adopt(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for range 2 {
			m.noteStays(t.Context())
		}
		rep, told := m.rec.Snapshot(), 0
		for _, note := range rep.Notes {
			if strings.HasPrefix(note, c.says) {
				told++
			}
		}
		if !m.plan.KeepsAddress() || rep.Handed == 0 || told != 1 {
			t.Errorf("%s: network %s, handed over at %d, notes %q", name, m.plan.Network, rep.Handed, rep.Notes)
		}
	}
}

// TestKeptAddressOfAGuestThatStands: also of one that keeps its address, and has no channel, is told that it ended.
func TestKeptAddressOfAGuestThatStands(t *testing.T) {
	m := landing(t, guests.New(care.Held{Description: config.Description{Name: "web"}}, standing(vm.Panicked)))
	m.plan.Network, m.plan.To = "tunnel", "rome"
	m.a.detours = detour.New(m.a.config.StatePath("detours.json"), config.Network{}, map[string]*detour.Detour{})
	for _, e := range []migration.Effect{migration.Adopt, migration.Leave} {
		if err := m.perform(t.Context(), e); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
	}
	if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); !strings.Contains(notes, "guest web panicked on rome") || strings.Contains(notes, "silent") {
		t.Error(notes)
	}
	if _, err := m.a.guests.Find("web"); err != nil {
		t.Errorf("it is not under care any more: %v", err)
	}
}

// panicsOn is a machine whose guest panics while its last pages come.
type panicsOn struct{ *stands }

func (p panicsOn) Progress(context.Context) (vm.Progress, error) {
	if p.status.Swap(vm.Panicked) == vm.Panicked {
		return vm.Progress{Status: vm.Completed}, nil
	}
	return vm.Progress{Status: vm.Active}, nil
}

// TestGuestThatStandsInPostCopy: one that ends after its handover, while its last pages come, is told of, too.
func TestGuestThatStandsInPostCopy(t *testing.T) {
	m := landing(t, guests.New(care.Held{Description: config.Description{Name: "web"}}, panicsOn{standing(vm.Running)}))
	m.plan.Network, m.plan.To, m.plan.Mode, m.plan.Transfer = "tunnel", "rome", "postcopy", "lanes"
	m.a.detours = detour.New(m.a.config.StatePath("detours.json"), config.Network{}, map[string]*detour.Detour{})
	if err := m.perform(t.Context(), migration.Leave); err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(m.rec.Snapshot().Notes, "\n"); strings.Count(notes, "guest web panicked on rome") != 1 {
		t.Errorf("notes %q", notes)
	}
}

// answersSecond is a machine whose QEMU answers the second question only.
type answersSecond struct {
	*stands
	asked *atomic.Bool
}

func (a answersSecond) Status(ctx context.Context) (vm.Status, error) {
	if !a.asked.Swap(true) {
		return "", context.DeadlineExceeded
	}
	return a.stands.Status(ctx)
}

// TestStandsBeforeItIsWatched: a guest whose QEMU stopped before it was asked, and did not answer at once, is seen to
// have ended all the same.
func TestStandsBeforeItIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &incoming{work: &destinationWork{guest: guests.New(care.Held{}, answersSecond{standing(vm.Panicked), new(atomic.Bool)})}}
		limit, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx, stop := m.whileRuns(limit)
		defer stop()
		<-ctx.Done()
		if why := context.Cause(ctx); !errors.Is(why, errStood) {
			t.Error(why)
		}
	})
}

// TestGuestThatRunsIsNotToldOf: nothing is said of a guest that runs, or that somebody has paused.
func TestGuestThatRunsIsNotToldOf(t *testing.T) {
	for _, status := range []vm.Status{vm.Running, vm.Paused, vm.IOError} {
		m := landing(t, talking(t, nil))
		m.work.guest.RunsIn(standing(status))
		if m.noteStays(t.Context()); len(m.rec.Snapshot().Notes) > 0 {
			t.Errorf("%s: %q", status, m.rec.Snapshot().Notes)
		}
	}
}
