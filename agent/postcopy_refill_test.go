package agent

import (
	"context"
	"encoding/json"
	"errors"
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
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
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

// TestLanesAreReplacedAtLeisure: lanes that end as they begin, as where a disk is full, are not replaced in a hot loop,
// each with another migration of the stopped guest, while its pages are missing.
func TestLanesAreReplacedAtLeisure(t *testing.T) {
	dir, err := os.MkdirTemp("", "gw") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := bareAgent(t, &config.Config{Host: "paris"})
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "postcopy", Transfer: "lanes", Epoch: 2}
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		peer.Answer(w, talk.RefillAnswer{State: talk.RefillOpen, Missing: 7}, nil)
	}))
	var migrated atomic.Int32
	ctx, cancel := context.WithTimeout(t.Context(), 4*refillPause)
	defer cancel()
	a.ctx = ctx
	m := &outgoing{
		a: a, link: link, plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), state: sourceDoing(t, migration.AwaitLanding),
		guest: guests.New(care.Held{Description: config.Description{Name: "web", Memory: 1 << 20}, Dir: dir}, breaksOff{runs{gone{done: make(chan struct{})}}, &migrated}),
	}
	m.keepServing(ctx)
	if n := migrated.Load(); n == 0 || n > 8 {
		t.Errorf("%d migrations in %v", n, 4*refillPause)
	}
	if p := m.rec.Snapshot().PostCopy; p == nil || p.Refills < int(migrated.Load()) {
		t.Errorf("of %d refills the source's report has %+v", migrated.Load(), p)
	}
}

// TestLastPagesAreTold: as a refill begins all that is missing is left, though nothing of it was read again yet; and
// nothing is told of pages that follow where none do.
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

// endedLanes have ended after they had handed QEMU its devices.
type endedLanes struct{ err error }

func (endedLanes) HandedOver() <-chan struct{} { return closedChannel() }
func (endedLanes) Done() <-chan struct{}       { return closedChannel() }
func (e endedLanes) Err() error                { return e.err }

func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// TestLastPageAfterARestart: an agent that was started again while pages were missing tells when the last was there, as
// the lanes end that brought it, and not when the handover is done; and for how long pages followed, also where an
// agent that has no lanes at all finds them whole.
func TestLastPageAfterARestart(t *testing.T) {
	whole := guests.New(care.Held{}, &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, vm.Completed})
	for name, c := range map[string]struct {
		finds func(m *incoming) error
		done  bool
	}{
		"lanes brought it":    {func(m *incoming) error { m.watchPostCopy(endedLanes{}); return nil }, true},
		"lanes broke":         {func(m *incoming) error { m.watchPostCopy(endedLanes{errors.New("cut")}); return nil }, false},
		"it is found, by now": {func(m *incoming) error { return m.awaitLastPage(t.Context()) }, true},
	} {
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "postcopy", Transfer: "lanes"}
		m := &incoming{plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: whole}}
		m.rec.Edit(func(r *record.Report) {
			r.PostCopy, r.Resumed = &record.PostCopy{Pages: 7}, m.rec.Now()-int64(2*time.Second)
		})
		if err := c.finds(m); err != nil {
			t.Error(name, err)
		}
		rep := m.rec.Snapshot()
		if (rep.MemoryDone != 0) != c.done || (rep.PostCopy.LastedS >= 2) != c.done {
			t.Errorf("%s: the last page at %d, they followed for %v s", name, rep.MemoryDone, rep.PostCopy.LastedS)
		}
	}
}
