// Package hook runs what people hang on the events of a migration: executables in a
// directory, HTTP calls, and subscribers of the agent's API.
//
// A hook gets a Call as JSON. Of a blocking event all hooks are asked one after the
// other (Ask), and each has a limit; of any other they are told (Tell), each by a
// queue of its own, and nobody waits for them. A hook may be called again for the same
// event after the agent was restarted.
package hook

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/migration"
)

// Call is what a hook is told, as JSON.
type Call struct {
	Event    migration.EventName `json:"event"`
	Blocking bool                `json:"blocking"` // the migration waits for the answer
	Host     string              `json:"host"`     // where the hook runs
	Role     migration.Role      `json:"role"`     // of that host
	Phase    migration.Phase     `json:"phase,omitempty"`
	Time     time.Time           `json:"time"` // of the event, by the host's clock
	Text     string              `json:"text,omitempty"`
	Old      []netip.Addr        `json:"old"`  // the guest's addresses before
	Next     []netip.Addr        `json:"next"` // and at the destination
	Plan     migration.Plan      `json:"migration"`
}

// Result is what came of an event for one hook.
type Result string

// The results.
const (
	Done     Result = "done"      // it did its work, or said go
	Refused  Result = "refused"   // a subscriber's own no
	Failed   Result = "failed"    // it ended with an error
	TimedOut Result = "timed_out" // its limit passed
	Dropped  Result = "dropped"   // too many events waited, it was not called
)

// Results lists all results.
var Results = []Result{Done, Refused, Failed, TimedOut, Dropped}

// resultOf is the result of a call that was not called off.
func resultOf(err error) Result {
	var problem *migration.Problem
	switch {
	case err == nil:
		return Done
	case asRefusal(err) != nil:
		return Refused
	case errors.As(err, &problem) && problem.Code == migration.CodeTimeout:
		return TimedOut
	}
	return Failed
}

// What follows the failure of a hook of a blocking event.
const (
	Abort    = "abort"    // the migration turns back
	Continue = "continue" // a note, and the migration goes on
)

const (
	// DefaultBlocking and DefaultInformative are the limits of a hook that names none.
	DefaultBlocking    = 5 * time.Second
	DefaultInformative = 30 * time.Second
	// MostTimeout bounds the limit that a hook may name.
	MostTimeout = time.Minute
)

// hook is one thing to call. run returns soon after ctx ends, and leaves nothing running.
type hook struct {
	name    string
	timeout time.Duration // 0: the default of the event's kind
	goesOn  bool          // after a failure
	run     func(ctx context.Context, c Call) error
}

func (h hook) limit(blocking bool) time.Duration {
	switch {
	case h.timeout > 0:
		return h.timeout
	case blocking:
		return DefaultBlocking
	}
	return DefaultInformative
}

// refusal is a subscriber's own word that it does not want the migration: it counts
// whatever its policy on failures is.
type refusal struct{ why string }

func (r *refusal) Error() string { return "it says no: " + r.why }

// call runs the hook within its limit. The error is one line and names the hook, the
// event and the limit that passed; it is ctx's own if that ended first.
func (h hook) call(ctx context.Context, c Call) error {
	limit := h.limit(c.Blocking)
	name := "hook_informative"
	if c.Blocking {
		name = "hook_blocking"
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := h.run(within, c)
	what := fmt.Sprintf("hook %s at %s of guest %s", h.name, c.Event, c.Plan.Guest)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case within.Err() != nil:
		return &migration.Problem{Code: migration.CodeTimeout, Text: fmt.Sprintf("%s: limit %s of %v passed: %v", what, name, limit, err)}
	}
	no := &migration.Problem{Code: migration.CodeHook, Text: fmt.Sprintf("%s: %v", what, err)}
	return errors.Join(no, asRefusal(err))
}

func asRefusal(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// Ask calls all hooks of a blocking event in order: executables by name, HTTP calls as
// configured, subscribers as they came. It returns nil when all have said go, or failed
// and may; else the *migration.Problem of the first that did not, and the others are not
// called. When ctx ends the hook that runs is killed and the error is ctx's. asked is how
// many were called.
func (s *Set) Ask(ctx context.Context, c Call) (asked int, err error) {
	c.Blocking = true
	for _, h := range s.of(c.Event) {
		asked++
		began := time.Now()
		err := h.call(ctx, c)
		if ctx.Err() != nil {
			return asked, ctx.Err()
		}
		s.count(c.Event, resultOf(err))
		s.log.Info("hook asked", "hook", h.name, "event", c.Event, "migration", c.Plan.ID, "took", time.Since(began), "error", err)
		if err == nil {
			continue
		}
		var problem *migration.Problem
		errors.As(err, &problem)
		if h.goesOn && asRefusal(err) == nil {
			s.note(c, problem.Text+"; going on, as configured")
			continue
		}
		return asked, problem
	}
	return asked, nil
}

// Blocking names the hooks that Ask would call for an event now.
func (s *Set) Blocking(event migration.EventName) []string {
	var names []string
	for _, h := range s.of(event) {
		names = append(names, h.name)
	}
	return names
}

// of are the hooks of an event, in the order in which they are called.
func (s *Set) of(event migration.EventName) []hook {
	out := s.files(event)
	for i, h := range s.config.HTTP {
		if slices.Contains(h.Events, event) {
			out = append(out, s.web[i])
		}
	}
	return append(out, s.subscribed(event)...)
}
