package agent

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// blocked is a QEMU in its switchover whose connection takes nothing: it answers nobody before that is cut.
type blocked struct {
	stuck
	cut  sync.Once
	free chan struct{}
}

func (b *blocked) Status(ctx context.Context) (vm.Status, error) {
	select {
	case <-b.free:
		return b.stuck.Status(ctx)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (b *blocked) CancelMigration(context.Context) error {
	b.cut.Do(func() { close(b.free) })
	return nil
}

// blockedLane is what stands between such a QEMU and the paths.
type blockedLane struct {
	forwarder
	*blocked
}

func (l blockedLane) Close() error { return l.CancelMigration(context.Background()) }

// TestGuestRunsOnWhoseStreamIsCut: a guest whose QEMU waits in its switchover for a dead path runs on soon, whoever has that
// stream: our data path, or QEMU by itself.
func TestGuestRunsOnWhoseStreamIsCut(t *testing.T) {
	for _, plan := range []migration.Plan{{Transfer: "qemu-mptcp"}, {Transfer: "qemu-tcp", Insecure: true}, {Transfer: "qemu-tcp"}} {
		synctest.Test(t, func(t *testing.T) {
			plan.ID, plan.Guest, plan.From, plan.To = "m-00000001", "web", "paris", "rome"
			machine := &blocked{stuck: stuck{gone: gone{done: make(chan struct{})}}, free: make(chan struct{})}
			m := &outgoing{
				a: bareAgent(t, &config.Config{Host: "paris"}), guest: guests.New(care.Held{}, machine), plan: plan, work: &sourceWork{},
				rec: record.New("paris", plan, time.Now()),
			}
			if !plan.Direct() {
				m.work.forward = blockedLane{blocked: machine}
			}
			ctx, end := limits.Undo.On(t.Context())
			defer end()
			begun := time.Now()
			if err := m.resume(ctx); err != nil || machine.runs.Load() != 1 {
				t.Errorf("%s: %v, continued %d times", plan.Transfer, err, machine.runs.Load())
			}
			if took := time.Since(begun); took != limits.Resume.For {
				t.Errorf("%s: runs after %v", plan.Transfer, took)
			}
			m.work.farewells.Wait()
		})
	}
}
