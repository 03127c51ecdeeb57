package agent

import (
	"testing"
	"time"

	"godwit/policy"
)

// caughtUp has rounds of m be read ahead already, and be short.
func caughtUp(m *outgoing) {
	m.work.rounds.ReadAhead()
	m.work.rounds.See(1040*time.Millisecond, 10)
	m.work.rounds.See(1060*time.Millisecond, 11)
}

// TestHybridReadsAhead: hybrid does not stop a guest whose rest follows it before all that was written is read, which
// would be read in the pause, unless what is left fits by then.
func TestHybridReadsAhead(t *testing.T) {
	const second = time.Second
	for name, fits := range map[string]bool{"the rest follows": false, "it fits meanwhile": true} {
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.work.facts.Memory = 1 << 30
		laned(t, m, nil)
		m.work.buffer = m.a.buffers.New(m.plan, m.work.facts.Memory)
		copying := policy.Copying{Budget: m.plan.Downtime, RTT: 20 * time.Millisecond}
		see := func(at time.Duration, round, left int64, want policy.Verdict) {
			t.Helper()
			m.work.rounds.See(at, round)
			look := policy.Look{At: at, Turn: 2 + int64(at/(10*time.Millisecond)), Remaining: left, Goodput: 20e6, Tail: policy.PackedTail}
			if got := m.handEarly(look, copying.See(look), &copying); got != want || m.work.early != (want == policy.Go && left > 1e6) {
				t.Errorf("%s, at %v: %s, early %v; want %s", name, at, got, m.work.early, want)
			}
		}
		see(0, 1, 400e6, policy.Wait)
		see(9*second, 2, 400e6, policy.Wait)
		see(13*second, 3, 400e6, policy.Wait)
		see(15*second, 4, 400e6, policy.Wait) // 1.5 times the first: it is read ahead from now on
		see(16*second, 5, 600e6, policy.Wait)
		see(17*second, 6, 700e6, policy.Wait) // long
		if fits {
			see(18*second, 6, 1e6, policy.Go)
			continue
		}
		see(17600*time.Millisecond, 7, 700e6, policy.Wait)
		see(17660*time.Millisecond, 8, 700e6, policy.Go) // short
	}
}
