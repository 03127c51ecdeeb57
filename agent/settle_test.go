package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/peer/peertest"
	"godwit/migration"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// laned gives m lanes, which work once may is closed.
func laned(t *testing.T, m *outgoing, may <-chan struct{}) {
	t.Helper()
	id := paths.Identity{Migration: m.plan.ID}
	destination, err := proxy.NewDestination(t.Context(), proxy.DestinationConfig{Identity: id, Socket: filepath.Join(t.TempDir(), "in"), Mirror: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destination.Close() }) //nolint:errcheck // its end is no matter
	all, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{
		Socket: filepath.Join(t.TempDir(), "out"), Identity: id, Spill: t.TempDir(),
		Lanes: []paths.Lane{{Path: "a", Open: func(ctx context.Context) (net.Conn, error) {
			select {
			case <-may:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			here, there := net.Pipe()
			go destination.Serve(t.Context(), there) //nolint:errcheck // the lane's end tells
			return here, nil
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() }) //nolint:errcheck // as above
	m.work.lanes, m.work.forward, m.a.detours = all, all, detour.New("", config.Network{}, nil)
}

// steps are those of m's switch.
func steps(m *outgoing) (names []string) {
	for _, s := range m.rec.Snapshot().Critical {
		names = append(names, s.Name)
	}
	return names
}

// TestMemorySettlesBeforeTheFlip: while packets still reach the guest here, and once the destination has answered, as
// nothing of what the guest writes goes from then on.
func TestMemorySettlesBeforeTheFlip(t *testing.T) {
	limit := limits.Settle
	limits.Settle.For = time.Minute // lanes are waited for
	t.Cleanup(func() { limits.Settle = limit })
	for _, early := range []bool{false, true} {
		m, n := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.link = peertest.Link(t, "paris", n.Host, present, nil)
		qemu := &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, vm.Active}
		qemu.runs.Store(1)
		m.guest.RunsIn(qemu)
		m.work.early = early
		may := make(chan struct{})
		close(may)
		laned(t, m, may)
		m.flip(t.Context()) //nolint:errcheck // there is no detour
		if got := steps(m); !slices.Equal(got, []string{"await an answer", "settle memory", "flip route"}) {
			t.Errorf("early %v: %v", early, got)
		}
	}
}

// copiesOn is a QEMU whose copy goes on: whoever looks at it so often has the path back, if ever.
type copiesOn struct {
	halted
	looks, backAt int
	back          chan struct{}
}

func (c *copiesOn) Progress(context.Context) (vm.Progress, error) {
	if c.looks++; c.looks == c.backAt {
		close(c.back)
	}
	return vm.Progress{Status: vm.Active, Rounds: 2}, nil
}

// TestCutBeforeTheFlip: a guest whose memory no lane carries as the switch begins runs on, and packets still reach it
// here, until one does, or the copy is given up as in any cut.
func TestCutBeforeTheFlip(t *testing.T) {
	limit := limits.Settle
	limits.Settle.For = time.Millisecond
	t.Cleanup(func() { limits.Settle = limit })
	soonAgain(t)
	for _, mode := range []string{"precopy", "hybrid", "postcopy", "stopcopy"} {
		for _, back := range []bool{true, false} {
			m, n := budgeted(t, mode, 300*time.Millisecond, 20*time.Millisecond)
			qemu := &copiesOn{halted: halted{stuck{gone: gone{done: make(chan struct{})}}}, back: make(chan struct{})}
			qemu.runs.Store(1)
			if m.a.config.Patience = 50 * time.Millisecond; back {
				m.a.config.Patience, qemu.backAt = time.Hour, 5
			}
			m.work.early = mayHandEarly(m.plan)
			m.guest.RunsIn(qemu)
			laned(t, m, qemu.back)
			m.link = peertest.Link(t, "paris", n.Host, present, nil)
			err := m.flip(t.Context())
			flipped := slices.Contains(steps(m), "flip route")
			if flipped != back {
				t.Errorf("%s, back %v: %v after %d looks: %v", mode, back, steps(m), qemu.looks, err)
			}
			if !back {
				agenttest.Refused(t, mode, err, migration.CodePath, "migrate guest web: not a byte of its memory moved to rome in 50ms")
			}
			if notes := m.rec.Snapshot().Notes; !slices.Contains(notes, "no path carried memory as the switch began: the guest ran on here, and its copy went on") {
				t.Errorf("%s, back %v: %q", mode, back, notes)
			}
		}
	}
}

// TestCopyThatEndsBeforeTheFlip: a guest is not stopped for a switch whose memory gets nowhere any more, and nobody
// waits for that.
func TestCopyThatEndsBeforeTheFlip(t *testing.T) {
	limit := limits.Settle
	limits.Settle.For = time.Minute
	t.Cleanup(func() { limits.Settle = limit })
	for _, status := range []vm.MigrationStatus{vm.Failed, vm.Active} { // QEMU may not have heard of it yet
		m, n := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.link = peertest.Link(t, "paris", n.Host, present, nil)
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
		if steps := m.rec.Snapshot().Critical; len(steps) != 2 {
			t.Errorf("%s: %+v", status, steps)
		}
	}
}
