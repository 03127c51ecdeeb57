package evacuate

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/migration"
)

// stoodStill is an agent of which one call fails after a while, as this process stood still and the call's time was
// over when it went on.
type stoodStill struct {
	*aHost
	events, host int           // which one
	took         time.Duration // by then
	silent       bool          // all later ones fail, at once
}

var errNoAnswer = errors.New("no answer for 30s")

func (s *stoodStill) fails(left *int) bool {
	*left--
	now := *left
	if now == 0 {
		time.Sleep(s.took)
	}
	return now == 0 || now < 0 && s.silent
}

func (s *stoodStill) Events(ctx context.Context, id string, after int) (record.EventsAnswer, error) {
	if s.fails(&s.events) {
		return record.EventsAnswer{}, errNoAnswer
	}
	return s.aHost.Events(ctx, id, after)
}

func (s *stoodStill) Host(ctx context.Context) (api.HostInfo, error) {
	if s.fails(&s.host) {
		return api.HostInfo{}, errNoAnswer
	}
	return s.aHost.Host(ctx)
}

// TestEvacuationThatStoodStill: one call that failed, after whatever time, says nothing of the agent, as this process
// may have been stopped meanwhile (Ctrl-Z): it is asked on, what became of guests is told, and those that have come are
// moved. One that goes on saying nothing is given up soon.
func TestEvacuationThatStoodStill(t *testing.T) {
	const never = 1 << 30
	for name, c := range map[string]struct {
		host stoodStill
		want string
	}{
		"as it followed a migration": {stoodStill{events: 2, host: never}, "late→b completed\nx→b completed"},
		"as it looked again":         {stoodStill{events: never, host: 2}, "late→b completed\nx→b completed"},
		"and nobody answers":         {stoodStill{events: 2, host: 2, silent: true}, "x→b what became of migration m-00000001 is not known: no answer for 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := c.host
				h.aHost, h.took = &aHost{guests: guests("x")}, 2*agentPatience
				time.AfterFunc(agentPatience, func() {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.guests = append(h.guests, guests("late")...)
				})
				begun := time.Now()
				result, err := Run(t.Context(), &h, Request{To: "b", Width: 1})
				if got := words(result); err != nil || got != c.want {
					t.Errorf("%v\n%s\nwant\n%s", err, got, c.want)
				}
				if took := time.Since(begun); took > 2*(h.took+agentPatience+time.Second) {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestStartedAgainAsItIsAsked: an agent that is started again while it is asked where guests may go has said nothing of
// any destination: it is asked on, and all move. One that stays away is waited for once, and no longer.
func TestStartedAgainAsItIsAsked(t *testing.T) {
	_, undialled := api.NewClient(filepath.Join(t.TempDir(), "none")).Plan(t.Context(), migration.Request{})
	for away, moves := range map[time.Duration]bool{agentPatience / 2: true, 10 * time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			h := &aHost{guests: guests("x", "y", "z")}
			h.plan = func(string, string) (record.Report, error) {
				if time.Since(begun) < away {
					return record.Report{}, undialled
				}
				return record.Report{Predicted: &record.Prediction{MigrationS: 5}}, nil
			}
			result, err := Run(t.Context(), h, Request{To: "far", Width: 2})
			if err != nil || result.OK != moves || len(result.Guests) != 3 {
				t.Errorf("away for %v: %v\n%s", away, err, words(result))
			}
			for _, g := range result.Guests {
				if !moves && g.Reason != undialled.Error() {
					t.Errorf("away for %v: %+v", away, g)
				}
			}
			if took := time.Since(begun); took > agentPatience+time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}
