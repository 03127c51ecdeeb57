package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/agent/written"
	"godwit/internal/lasting/lastingtest"
	"godwit/migration"
	"godwit/transfer/proxy"
)

// TestInletThatCannotBeAsked: where the host has nothing left to ask an inlet by, it is not known what its guest
// misses; where there is none, or it has ended, nothing.
func TestInletThatCannotBeAsked(t *testing.T) {
	dir := t.TempDir()
	without := func() (begun bool, missing uint64, err error) {
		t.Helper()
		if err := lastingtest.WithoutDescriptors(func() { begun, missing, err = inletOf(t.Context(), dir) }); err != nil {
			t.Fatal(err)
		}
		return begun, missing, err
	}
	if begun, missing, err := without(); begun || missing > 0 || err != nil {
		t.Errorf("none: %v, %d, %v", begun, missing, err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: inletSocket(dir)})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if begun, missing, err := without(); begun || missing > 0 || err == nil {
		t.Errorf("nothing to ask by: %v, %d, %v", begun, missing, err)
	}
	ln.Close()
	if begun, missing, err := inletOf(t.Context(), dir); begun || missing > 0 || err != nil {
		t.Errorf("ended: %v, %d, %v", begun, missing, err)
	}
}

// TestMayStarve: a guest whose inlet could not be asked as the agent started is brought the pages that it may miss,
// before its QEMU answers: that may wait for one of them.
func TestMayStarve(t *testing.T) {
	for name, kept := range map[string]bool{"before it was started": false, "under care": true} {
		t.Run(name, func(t *testing.T) {
			a, p := awaiting(t)
			t.Cleanup(a.actors.Wait) // they end with the test's context
			p.Description.Disks, p.Plan.Mode, p.Plan.Transfer = nil, "postcopy", "lanes"
			h, end := silently(t, a)
			ln, err := net.Listen("unix", inletSocket(h.Dir))
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() { // it has no memory left for a client
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					conn.Close()
				}
			}()
			if kept {
				if err := statefile.Write(filepath.Join(a.config.StatePath("guests"), "web.json"), h); err != nil {
					t.Fatal(err)
				}
			}
			journalOf(t, a, p.Plan.ID, written.Destination{
				Side: "destination", Offer: talk.Offer{Plan: p.Plan, Description: p.Description}, Preparation: p, Held: h,
				State: migration.Destination{Landing: migration.Starting, Epoch: p.Plan.Epoch, Released: true, Loaded: true},
			})
			a.resumeMigrations(t.Context(), a.readopt(t.Context()))
			a.mu.Lock()
			m := a.incoming[p.Plan.ID]
			a.mu.Unlock()
			if m == nil {
				t.Fatalf("nobody serves it: %s", unreadOf(a, p.Plan.ID))
			}
			if !m.starving.Load() || unreadOf(a, p.Plan.ID) != "" || len(a.guests.AllSilent()) > 0 {
				t.Errorf("it may starve: %v; left alone: %q; waited for: %v", m.starving.Load(), unreadOf(a, p.Plan.ID), a.guests.AllSilent())
			}
			end()
			waitFor(t, "its QEMU is gone", func() bool { return m.snapshot().Vanished })
			if _, err := os.Stat(filepath.Join(a.config.StatePath("guests"), "web.json")); (err == nil) != kept {
				t.Errorf("what is remembered of it: %v", err)
			}
		})
	}
}

// besideAnInlet is a migration that was found again, and who listens as its inlet.
func besideAnInlet(t *testing.T) (*incoming, net.Listener) {
	t.Helper()
	a, p := awaiting(t)
	ctx, cancel := context.WithCancel(t.Context())
	a.ctx = ctx
	t.Cleanup(a.actors.Wait)
	t.Cleanup(cancel)
	m := &incoming{a: a, plan: p.Plan, dir: t.TempDir(), work: &destinationWork{}}
	ln, err := net.Listen("unix", inletSocket(m.dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return m, ln
}

// TestHandedOverToNewLanes: an inlet that could not be asked, and is fed by new lanes since, is not asked again: that
// would cut them off.
func TestHandedOverToNewLanes(t *testing.T) {
	m, ln := besideAnInlet(t)
	asked := make(chan struct{}, 2)
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			asked <- struct{}{}
			m.mu.Lock()
			m.work.lanes = new(proxy.Destination)
			m.mu.Unlock()
			conn.Close()
		}
	}()
	select {
	case <-m.handedOver():
	case <-time.After(20 * time.Second):
		t.Fatal("it was handed over, and nobody has said so")
	}
	if n := len(asked); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// TestHandedOverIsAskedOn: whether QEMU's connection was handed to an inlet that could not be asked is asked again: the
// guest would else wait for its last page before it runs.
func TestHandedOverIsAskedOn(t *testing.T) {
	m, ln := besideAnInlet(t)
	asked := make(chan struct{})
	go func() {
		for range 2 {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
		close(asked)
	}()
	select {
	case <-m.handedOver():
		t.Fatal("it was handed over, and nobody has said so")
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Fatal("it is not asked again")
	}
}
