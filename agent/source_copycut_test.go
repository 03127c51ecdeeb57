package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/vm"
)

// cutMeanwhile is a QEMU of which nothing moves from the tenth second to the fiftieth, and all has moved by the 52nd.
type cutMeanwhile struct {
	gone
	begun time.Time
}

func (c cutMeanwhile) Progress(context.Context) (vm.Progress, error) {
	at, left := time.Since(c.begun), int64(50e6)
	if at > 10*time.Second {
		at = 10*time.Second + max(0, at-50*time.Second)
	}
	if at > 12*time.Second {
		left = 0
	}
	return vm.Progress{Status: vm.Active, Rounds: 2 + int64(at/time.Second), Remaining: left, Transferred: int64(at / 100)}, nil
}

// TestCutTakesNoTime: a copy whose paths were cut for longer than it may come no nearer to its end goes on after that.
func TestCutTakesNoTime(t *testing.T) {
	m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.plan.Transfer, m.a.config.Patience = "qemu-tcp", time.Minute
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		m.guest.RunsIn(cutMeanwhile{begun: begun})
		agenttest.Refused(t, "cut for 40 s", m.awaitFit(t.Context(), m.paths(n)), "")
		if took := time.Since(begun).Round(time.Second); took != 53*time.Second && took != 52*time.Second {
			t.Errorf("after %v", took)
		}
	})
}
