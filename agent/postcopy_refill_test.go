package agent

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/transfer/proxy"
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

// TestLastPagesAreTold: as a refill begins all that is missing is left, though nothing of it was read again yet; and nothing is told of pages
// that follow where none do.
func TestLastPagesAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		follow *record.PostCopy
		want   []int64
	}{
		"a refill":                 {&record.PostCopy{Refills: 1}, []int64{7 << 12}},
		"all came before it moved": {nil, nil},
	} {
		m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
		m.rec.Event(migration.TargetResume) // or nobody who watches comes back
		lanes, err := proxy.ListenSource(t.Context(), proxy.SourceConfig{Socket: filepath.Join(t.TempDir(), "out"), Refill: true})
		if err != nil {
			t.Fatal(err)
		}
		m.rec.Edit(func(r *record.Report) { r.PostCopy = c.follow })
		m.work.lanes, m.work.missing = lanes, 7
		m.tellLastPages(lanes)
		var got []int64
		for _, e := range m.rec.Watch(t.Context(), 0).Events {
			var p record.CopyProgress
			if e.Kind == "progress" && json.Unmarshal(e.Data, &p) == nil {
				got = append(got, p.Left())
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: left %v, want %v", name, got, c.want)
		}
		lanes.Close() //nolint:errcheck // nothing came
	}
}
