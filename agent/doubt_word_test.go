package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/migration"
)

// TestWordThatIsNotTaken: a person who hears that the guest could not be taken back may start its destination again: so it is not taken back later. Where
// that is being journalled it is said that it may be.
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
