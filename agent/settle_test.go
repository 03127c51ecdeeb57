package agent

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// TestMemorySettlesBeforeTheFlip: while packets still reach the guest here.
func TestMemorySettlesBeforeTheFlip(t *testing.T) {
	limit := limits.Settle
	limits.Settle.For = 50 * time.Millisecond // no lane works
	t.Cleanup(func() { limits.Settle = limit })
	for _, early := range []bool{false, true} {
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		lanes, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: filepath.Join(t.TempDir(), "out")})
		if err != nil {
			t.Fatal(err)
		}
		m.guest.RunsIn(&pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, vm.Active})
		m.work.lanes, m.work.early, m.a.detours = lanes, early, detour.New("", config.Network{}, nil)
		m.flip(t.Context()) //nolint:errcheck // there is no detour
		var steps []string
		for _, s := range m.rec.Snapshot().Critical {
			steps = append(steps, s.Name)
		}
		if !slices.Equal(steps, []string{"settle memory", "flip route"}) {
			t.Errorf("early %v: %v", early, steps)
		} else if took := m.rec.Snapshot().Critical[0].MS; took < 50 {
			t.Errorf("early %v: lanes that do not work were waited for for %v ms", early, took)
		}
		lanes.Close() //nolint:errcheck // nothing came
	}
}

// TestCopyThatEndsBeforeTheFlip: a guest is not stopped for a switch whose memory gets nowhere any more, and nobody
// waits for that.
func TestCopyThatEndsBeforeTheFlip(t *testing.T) {
	limit := limits.Settle
	limits.Settle.For = time.Minute
	t.Cleanup(func() { limits.Settle = limit })
	for _, status := range []vm.MigrationStatus{vm.Failed, vm.Active} { // QEMU may not have heard of it yet
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.guest.RunsIn(&pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, status})
		ctx, cancel := context.WithCancelCause(t.Context())
		lanes, err := proxy.ListenSource(ctx, proxy.SourceConfig{Socket: filepath.Join(t.TempDir(), "out")})
		if err != nil {
			t.Fatal(err)
		}
		m.work.lanes, m.work.forward, m.a.detours = lanes, lanes, detour.New("", config.Network{}, nil)
		cancel(errors.New("the other end: no space left on device"))
		<-lanes.Done()
		begun := time.Now()
		err = m.flip(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s: it goes on, or does not say why not: %v", status, err)
		}
		if took := time.Since(begun); took > limits.Settle.For/2 {
			t.Errorf("%s: lanes that have ended were waited for, for %v", status, took)
		}
		if steps := m.rec.Snapshot().Critical; len(steps) != 1 {
			t.Errorf("%s: %+v", status, steps)
		}
	}
}
