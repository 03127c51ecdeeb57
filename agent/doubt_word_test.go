package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
)

// TestWordThatIsNotTaken: a person who hears that the guest could not be taken back may start its destination again: so
// it is not taken back later. Where that is being journalled it is said that it may be.
func TestWordThatIsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		taken, written bool
		want           string
	}{
		"nobody hears it":        {want: "nothing was changed"},
		"it is being journalled": {taken: true, want: "may come into force yet: keep rome off"},
		"it is journalled":       {taken: true, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := sourceDoing(t, migration.Release)
				m := &outgoing{a: bareAgent(t, &config.Config{Host: "paris"}), plan: migration.Plan{ID: "m-00000001", Guest: "web", To: "rome"}, inbox: make(chan migration.Input, 1)}
				m.told.Store(&state)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				listens := func() {
					if _, err := m.next(ctx); err == nil && c.written {
						after := state
						after.Epoch++
						m.told.Store(&after)
					}
				}
				if c.taken {
					go listens()
				}
				refuse := func(format string, args ...any) error {
					return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(format, args...)}
				}
				in := migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked}}
				begun := time.Now()
				err := m.hear(ctx, in, state.Epoch, refuse)
				if c.want == "" {
					if err != nil || time.Since(begun) > time.Second {
						t.Errorf("after %v: %v", time.Since(begun), err)
					}
					return
				}
				agenttest.Refused(t, name, err, migration.CodeUsage, c.want)
				if waited := time.Since(begun); waited < limits.Word.For {
					t.Errorf("it was told after %v", waited)
				}
				if !c.taken {
					soon, stop := context.WithTimeout(ctx, time.Second)
					defer stop()
					if in, err := m.next(soon); err == nil {
						t.Errorf("%s comes into force", in.Kind)
					}
				}
			})
		})
	}
}

// TestWordThatCouldNotBeWritten: a person whose word could not be written down hears that at once, and that nothing was
// changed: it does not come into force later.
func TestWordThatCouldNotBeWritten(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	asked := make(chan struct{}, 1)
	link := linked(t, "paris", "rome", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done() // it never answers
	}))
	a := bareAgent(t, &config.Config{Host: "paris", State: t.TempDir(), Patience: time.Minute})
	a.ctx, a.log, a.detours = t.Context(), slog.New(slog.DiscardHandler), detour.New("", config.Network{}, map[string]*detour.Detour{})
	log, err := journal.Create(t.TempDir(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := &outgoing{
		a: a, guest: guests.New(care.Held{}, nil), plan: plan, link: link, state: sourceDoing(t, migration.Release), log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()),
		inbox: make(chan migration.Input, 1),
	}
	m.setState(m.state)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.run(ctx, migration.Input{Kind: migration.Restarted})
	}()
	defer func() { end(); <-ended }()
	<-asked
	if err := log.Close(); err != nil { // it takes nothing from now on
		t.Fatal(err)
	}
	in := migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked}}
	err = m.hear(t.Context(), in, m.snapshot().Epoch, func(format string, args ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(format, args...)}
	})
	agenttest.Refused(t, "its journal takes nothing", err, migration.CodeUsage, "write journal", "nothing was changed")
	if epoch := m.snapshot().Epoch; epoch != 2 {
		t.Errorf("its epoch is %d by now", epoch)
	}
}

// TestWordThatComesTooLate: a person whose word came when the destination had answered hears that, and not what the
// machine calls it.
func TestWordThatComesTooLate(t *testing.T) {
	m := &outgoing{state: sourceDoing(t, migration.CleanSource)}
	_, _, err := m.state.Step(migration.Input{Kind: migration.TakeBack, Problem: &migration.Problem{Code: migration.CodeAsked}})
	if err == nil || m.whyNot(err) != tooLateToTake {
		t.Errorf("%v: %s", err, m.whyNot(err))
	}
}
