package evacuate

import (
	"context"
	"errors"
	"time"

	"godwit/agent/api"
	"godwit/internal/clock"
)

// agentPatience is how long an agent may not answer: it may be started again.
const agentPatience = 30 * time.Second

// tryPause is between questions to an agent that did not answer.
const tryPause = 200 * time.Millisecond

// patience is for how long an agent has not answered, from its first failure on: before that one may have taken any
// time, as this process stood still, and the agent is asked again before anything is concluded.
type patience struct{ since time.Time }

// over takes note of one more failure, and says whether patience is at its end.
func (p *patience) over() bool {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	return time.Since(p.since) > agentPatience
}

// look asks for the host's guests again. An agent that does not answer any more leaves
// everything as it was.
func (e *evacuation) look(ctx context.Context, before api.HostInfo) (api.HostInfo, error) {
	var err error
	for left := (patience{}); clock.Sleep(ctx, tryPause); {
		var info api.HostInfo
		if info, err = e.host.Host(ctx); err == nil {
			return info, nil
		}
		if left.over() {
			break
		}
	}
	return before, errors.Join(err, ctx.Err())
}
