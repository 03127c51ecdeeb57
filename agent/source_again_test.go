package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// TestNextTryWatchesItsGuest: a migration that begins again knows the process of its guest's QEMU, and turns back as
// that ends; what watched for the try before does not.
func TestNextTryWatchesItsGuest(t *testing.T) {
	a, _ := served(t)
	m := leaving(a)
	machine := &halted{stuck{gone: gone{done: make(chan struct{})}}}
	m.guest, m.inbox = guests.New(care.Held{}, machine), make(chan migration.Input, 4)
	m.told.Store(&m.state)
	before, ended := m.work, false
	before.stopWatch = func() { ended = true }
	m.newEpoch(migration.Source{Course: migration.Forward, Epoch: 3, Tries: 1})
	if !ended || m.work == before {
		t.Error("the guest is watched for the try before")
	}
	if want := processOf(os.Getpid()); m.process != want || want == "" {
		t.Errorf("process %q, want %q", m.process, want)
	}
	close(machine.done)
	select {
	case in := <-m.inbox:
		if in.Kind != migration.Abort || in.Problem.Code != migration.CodeGuestGone {
			t.Errorf("%s, %+v", in.Kind, in.Problem)
		}
	case <-time.After(20 * time.Second):
		t.Error("its end is not seen")
	}
}

// sendsMemory is a QEMU whose memory ends that way.
type sendsMemory struct {
	*halted
	released error
	ends     error
	asked    *atomic.Int32 // to switch over
	silent   *atomic.Int32 // it does not answer so often before
}

func (s sendsMemory) ReleaseSwitchover(context.Context) error { s.asked.Add(1); return s.released }
func (s sendsMemory) AwaitMigration(context.Context) (vm.Progress, error) {
	if s.silent.Add(-1) >= 0 {
		return vm.Progress{}, fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	}
	return vm.Progress{Downtime: 70 * time.Millisecond, Rounds: 3}, s.ends
}

// TestFinishMemory: the last of memory is followed until it is there; a destination that cannot get it, and cannot run
// the guest, is asked to refuse it, and no other one is: nor where somebody else sees to the rest.
func TestFinishMemory(t *testing.T) {
	broke := errors.New("it broke")
	for name, c := range map[string]struct {
		mode          string
		released, end error
		status        vm.Status // of the guest there
		gone, resent  bool
		over          string // what ended before
		refusal, done bool
		silent        int32
	}{
		"it is there":                {"precopy", nil, nil, "", false, false, "", false, true, 0},
		"it need not be released":    {"precopy", broke, nil, "", false, false, "", false, true, 0},
		"it breaks":                  {"precopy", nil, broke, "", false, false, "", true, false, 0},
		"it runs there already":      {"hybrid", nil, broke, vm.Running, false, false, "", false, false, 0},
		"it still waits there":       {"hybrid", nil, broke, vm.Incoming, false, false, "", true, false, 0},
		"its pages are sent again":   {"precopy", nil, broke, "", false, true, "", false, false, 0},
		"its QEMU is gone":           {"precopy", nil, nil, "", true, false, "", true, false, 0},
		"another follows":            {"precopy", nil, broke, "", false, false, "life", false, false, 0},
		"the agent ends":             {"precopy", nil, broke, "", false, false, "release", false, false, 0},
		"it answers nobody for long": {"precopy", nil, nil, "", false, false, "", false, true, 3},
		"it does, and breaks":        {"precopy", nil, broke, "", false, false, "", true, false, 3},
		"it does, another follows":   {"precopy", nil, broke, "", false, false, "life", false, false, 1},
		"it does, and is gone":       {"precopy", nil, nil, "", true, false, "", true, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := served(t)
			m := leaving(a)
			m.plan.Mode, m.plan.Transfer, m.plan.Epoch, m.state.Epoch = c.mode, "lanes", 2, 2
			m.told.Store(&m.state)
			var refusals atomic.Int32
			m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/landing") {
					peer.Answer(w, talk.LandingAnswer{Landing: migration.Waiting, Status: c.status}, nil)
					return
				}
				var ask talk.Undo
				if err := peer.Decode(r, &ask); err != nil || !ask.Released || ask.Epoch != 2 || !strings.HasSuffix(r.URL.Path, "/abort") {
					t.Errorf("%s: %+v, %v", r.URL.Path, ask, err)
				}
				refusals.Add(1)
				peer.Answer(w, talk.ReleaseAnswer{}, nil)
			}))
			machine := sendsMemory{&halted{stuck{gone: gone{done: make(chan struct{})}}}, c.released, c.end, new(atomic.Int32), new(atomic.Int32)}
			machine.silent.Store(c.silent)
			if c.gone {
				close(machine.done)
			}
			m.guest = guests.New(care.Held{}, machine)
			m.work.pagesResent.Store(c.resent)
			life, endLife := context.WithCancel(t.Context())
			defer endLife()
			release, endRelease := context.WithCancel(t.Context())
			defer endRelease()
			switch c.over {
			case "life":
				endLife()
			case "release":
				endRelease()
			}
			m.finishMemory(life, release)
			if asked := refusals.Load() > 0; asked != c.refusal {
				t.Errorf("asked to refuse: %v", asked)
			}
			rep := m.rec.Snapshot()
			if done := rep.MemoryDone != 0 && rep.Rounds == 3 && rep.QEMUDowntimeMS != nil && *rep.QEMUDowntimeMS == 70; done != c.done || rep.MemoryDone != 0 && !c.done {
				t.Errorf("its figures: at %d, %d rounds, %v", rep.MemoryDone, rep.Rounds, rep.QEMUDowntimeMS)
			}
			if switched := machine.asked.Load() > 0; switched == c.gone {
				t.Errorf("released to switch over: %v", switched)
			}
		})
	}
}
