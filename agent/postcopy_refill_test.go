package agent

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// breaksOff is a QEMU whose migrations end as they begin.
type breaksOff struct {
	runs
	migrated *atomic.Int32
}

func (breaksOff) CancelMigration(context.Context) error { return nil }

func (b breaksOff) Migrate(_ context.Context, o vm.MigrateOptions) error {
	b.migrated.Add(1)
	conn, err := net.Dial("unix", strings.TrimPrefix(o.URI, "unix:"))
	if err == nil {
		err = conn.Close()
	}
	return err
}

// TestLanesAreReplacedAtLeisure: lanes that end as they begin, as where a disk is full, are not replaced in a hot loop, each with another migration of
// the stopped guest, while its pages are missing.
func TestLanesAreReplacedAtLeisure(t *testing.T) {
	dir, err := os.MkdirTemp("", "gw") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := bareAgent(t, &config.Config{Host: "paris"})
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "postcopy", Transfer: "lanes", Epoch: 2}
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		peer.Answer(w, RefillAnswer{State: refillOpen, Missing: 7}, nil)
	}))
	var migrated atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), 4*refillPause)
	defer cancel()
	a.ctx = ctx
	m := &outgoing{
		a: a, link: link, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), state: sourceDoing(t, migration.AwaitLanding),
		guest: &Guest{
			Held:    care.Held{Description: config.Description{Name: "web", Memory: 1 << 20}, Dir: dir},
			Machine: breaksOff{runs{gone{done: make(chan struct{})}}, &migrated},
		},
	}
	m.keepServing(ctx)
	if n := migrated.Load(); n == 0 || n > 8 {
		t.Errorf("%d migrations in %v", n, 4*refillPause)
	}
	if p := m.rec.Snapshot().PostCopy; p == nil || p.Refills < int(migrated.Load()) {
		t.Errorf("of %d refills the source's report has %+v", migrated.Load(), p)
	}
}

// TestRefillsOutliveTheDestination: a destination's agent that was killed between two refills knows of the second alone, and the source of both.
func TestRefillsOutliveTheDestination(t *testing.T) {
	for _, c := range []struct{ here, there, want int }{{2, 1, 2}, {1, 2, 2}} {
		r := record.Report{PostCopy: &record.PostCopy{Why: "asked", Refills: c.here}}
		takeOver(&r, record.Report{PostCopy: &record.PostCopy{Pages: 7, Refills: c.there}}, 0)
		if got := *r.PostCopy; got != (record.PostCopy{Why: "asked", Pages: 7, Refills: c.want}) {
			t.Errorf("%d here and %d there: %+v", c.here, c.there, got)
		}
	}
}
