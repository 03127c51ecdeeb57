package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"godwit/migration"
)

// TestAbortIsAnsweredByWhatItComesTo: a migration that lets go in the moment in which it is called off is not said to turn back.
func TestAbortIsAnsweredByWhatItComesTo(t *testing.T) {
	for name, c := range map[string]struct {
		then func(m *outgoing)
		want string
	}{
		"it turned back":      {func(m *outgoing) { m.over.Store(true) }, ""},
		"it was letting go":   {func(m *outgoing) { m.released.Store(true) }, "handed over"},
		"it takes its time":   {func(*outgoing) {}, ""},
		"it was turning back": {func(m *outgoing) { m.released.Store(false); m.over.Store(true) }, ""},
	} {
		m := &outgoing{plan: migration.Plan{ID: "m-00000001", To: "paris"}, inbox: make(chan migration.Input, 1)}
		go func() {
			<-m.inbox
			time.Sleep(20 * time.Millisecond)
			c.then(m)
		}()
		patience := 20 * time.Second
		if name == "it takes its time" {
			patience = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := m.abortFor(ctx, &migration.Problem{Code: migration.CodeAsked})
		cancel()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: answered %v, want %q", name, err, c.want)
		}
	}
}
