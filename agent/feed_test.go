package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/agent/hook"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// served is an agent of which only the API, the events and the hooks work, and its client.
func served(t *testing.T) (*Agent, *api.Client) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	config := &config.Config{Host: "paris", Uplinks: []config.Uplink{{Name: "public"}}, Peers: []config.Neighbour{{Host: "rome", Uplinks: []config.Uplink{{Name: "public"}}}}}
	a := &Agent{
		config: config, metrics: newMetrics(config), log: log, ctx: t.Context(), feed: newFeed(), records: noRecords(config), clock: time.Now,
	}
	a.hooks = hook.New(hook.Config{Dir: t.TempDir()}, log, a.hookNote, a.metrics.HookCalled)
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := listenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: a.localAPI()} //nolint:gosec // of a test
	go server.Serve(ln)                           //nolint:errcheck // it ends with the test
	client := api.NewClient(socket)
	t.Cleanup(func() { client.Close(); server.Close(); a.hooks.Close() })
	return a, client
}

// leaving is a migration that leaves a; nothing of it is begun.
func leaving(a *Agent) *outgoing {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now()), work: &sourceWork{}}
	m.state, _, _ = m.state.Step(migration.Input{Kind: migration.Start})
	a.records.Add(m.rec)
	a.follow(m.rec, m.plan)
	return m
}

func TestFeedShowsAllMigrations(t *testing.T) {
	a, client := served(t)
	got := make(chan api.FeedEvent, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- client.Feed(ctx, func(e api.FeedEvent) error { got <- e; return nil }) }()
	for ready := false; !ready; time.Sleep(time.Millisecond) {
		a.feed.mu.Lock()
		ready = len(a.feed.readers) == 1
		a.feed.mu.Unlock()
	}
	m := leaving(a)
	m.rec.Event(migration.SourceSuspend)
	m.rec.Note("a remark")
	if e := <-got; e.Migration != "m-00000001" || e.Guest != "web" || e.Name != migration.SourceSuspend || e.Host != "paris" {
		t.Errorf("%+v", e)
	}
	if e := <-got; e.Kind != "note" || e.Text != "a remark" {
		t.Errorf("%+v", e)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFeedTellsWhatWasMissed(t *testing.T) {
	f := newFeed()
	r := f.join()
	for range feedAhead + 7 {
		f.publish(api.FeedEvent{})
	}
	for range feedAhead {
		<-r.events
	}
	f.publish(api.FeedEvent{Guest: "web"})
	if e := <-r.events; e.Kind != "note" || !strings.Contains(e.Text, "7 events") {
		t.Errorf("%+v", e)
	}
	if e := <-r.events; e.Guest != "web" {
		t.Errorf("%+v", e)
	}
}

func TestSubscriberOverTheAPI(t *testing.T) {
	a, client := served(t)
	m := leaving(a)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var heard []migration.EventName
	ended := make(chan error, 1)
	sub := hook.Subscription{Name: "lb/1", Events: []migration.EventName{migration.PreMigrationStart, migration.MigrationStart}}
	go func() {
		ended <- client.Hook(ctx, sub, func(_ context.Context, c hook.Call) error {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, c.Event)
			if len(heard) == 1 {
				return errors.New("not now")
			}
			if c.Event == migration.MigrationStart {
				cancel()
			}
			return nil
		})
	}()
	for len(a.hooks.Blocking(migration.PreMigrationStart)) == 0 {
		time.Sleep(time.Millisecond)
	}
	err := m.askStart(t.Context())
	agenttest.Refused(t, "a subscriber that refuses", err, migration.CodeHook, "hook lb/1 at PRE_MIGRATION_START of guest web", "not now")
	if err := m.askStart(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if want := []migration.EventName{migration.PreMigrationStart, migration.PreMigrationStart, migration.MigrationStart}; !slices.Equal(heard, want) {
		t.Errorf("heard %v", heard)
	}
	for len(a.hooks.Blocking(migration.PreMigrationStart)) != 0 { // gone with its connection
		time.Sleep(time.Millisecond)
	}
	if _, err := m.askHooks(t.Context(), migration.PreMigrationStart); err != nil {
		t.Error(err)
	}
	bad := client.Hook(t.Context(), hook.Subscription{Name: "x", Events: []migration.EventName{"LUNCH"}}, nil)
	agenttest.Refused(t, "an event that is none", bad, migration.CodeUsage, `"LUNCH" is unknown`)
}

// TestUnknownKeys: what a program asks with a key that nobody knows is refused, and not done as if that had not been said.
func TestUnknownKeys(t *testing.T) {
	a, client := served(t)
	m := leaving(a)
	m.bandwidth.Set(50e6)
	a.outgoing = map[string]*outgoing{m.plan.ID: m}
	for _, c := range []struct{ path, body, says string }{
		{"/v1/migrations", `{"guest": "web", "to": "rome", "downtimes": 1000000}`, `unknown field "downtimes"`},
		{"/v1/plan", `{"guest": "web", "site": "rome"}`, `unknown field "site"`},
		{"/v1/migrations/m-00000001/bandwidth", `{"bits": 1000000}`, `unknown field "bits"`},
		{"/v1/migrations/m-00000001/bandwidth", `{}`, "bandwidth of -1 bit/s"},
		{"/v1/migrations/m-00000001/take-back", `{"fence": true}`, `unknown field "fence"`},
		{"/v1/migrations/m-00000001/keep", `{"fence": true}`, `unknown field "fence"`},
		{"/v1/hooks", `{"name": "lb", "events": ["MIGRATION_START"], "timeout": 5000}`, `unknown field "timeout"`},
		{"/v1/hooks/lb/answer", `{"id": 1, "no": true}`, `unknown field "no"`},
		{"/v1/guests", `{"name": "db", "memory": 268435456, "agents": "dhcp"}`, `unknown field "agents"`},
		{"/v1/guests", `{"name": "db", "disks": [{"ID": "a", "ro": true}]}`, `unknown field "ro"`},
		{"/v1/guests/web/call", `{"method": "info", "wait": 5}`, `unknown field "wait"`},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a hook that is taken waits for calls
		err := client.Do(ctx, http.MethodPost, c.path, json.RawMessage(c.body), nil)
		cancel()
		agenttest.Refused(t, c.path, err, migration.CodeUsage, c.says)
	}
	if got := m.bandwidth.Bits(); got != 50e6 {
		t.Errorf("the limit is %d bit/s now", got)
	}
}

// TestAbortOvertakesPrepare: a prepare that comes after its abort begins nothing.
func TestAbortOvertakesPrepare(t *testing.T) {
	a, _ := served(t)
	a.abortedEarly, a.incoming = map[string]earlyAbort{}, map[string]*incoming{}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
	r.SetPathValue("id", "m-00000002")
	if answer, err := a.peerAbort(r); err != nil || answer.(talk.ReleaseAnswer).State != "declined" {
		t.Fatalf("%+v, %v", answer, err)
	}
	_, err := a.incomingFor(talk.Preparation{Plan: migration.Plan{ID: "m-00000002", To: "paris"}}) // the request has no caller
	agenttest.Refused(t, "a late prepare", err, migration.CodeAsked, "m-00000002", "gave it up before its prepare")
	a.abortedEarly["m-00000003"] = earlyAbort{at: time.Now().Add(-2 * silence)}
	a.rememberAborted("rome", "m-00000004", 2)
	if len(a.abortedEarly) != 2 {
		t.Errorf("remembered: %v", a.abortedEarly)
	}
	for i := range 2 * earlyMost {
		a.rememberAborted("rome", fmt.Sprintf("m-%08x", 16+i), 2)
	}
	a.rememberAborted("rome", "../x", 2)
	if len(a.abortedEarly) > earlyMost {
		t.Errorf("%d remembered", len(a.abortedEarly))
	}
}

// TestCheckHooks: where the guest could not be held for a hook, the check says so.
func TestCheckHooks(t *testing.T) {
	a, _ := served(t)
	m := leaving(a)
	m.plan.Insecure, m.work.facts.Hold = true, vm.HoldLowBandwidth
	if err := m.checkHooks(); err != nil || len(m.rec.Snapshot().Notes) != 0 {
		t.Errorf("without hooks: %v", err)
	}
	if _, err := a.hooks.Subscribe(hook.Subscription{Name: "lb", Events: []migration.EventName{migration.PreSourceSuspend}}); err != nil {
		t.Fatal(err)
	}
	agenttest.Refused(t, "insecure", m.checkHooks(), migration.CodeHook, "guest web", "insecure_transfer", "(lb)")
	m.plan.Insecure = false
	if err := m.checkHooks(); err != nil || len(m.rec.Snapshot().Notes) != 1 {
		t.Errorf("held by bandwidth: %v, %q", err, m.rec.Snapshot().Notes)
	}
	m.work.facts.Hold = vm.HoldAck
	if err := m.checkHooks(); err != nil || len(m.rec.Snapshot().Notes) != 1 {
		t.Errorf("held by acknowledgement: %v", err)
	}
}

// TestLimitedAsItIsChecked: a migration is given another limit, as by an evacuation, while its check completes the
// plan. (The race detector looks on in `make race`.)
func TestLimitedAsItIsChecked(t *testing.T) {
	a, client := served(t)
	m := leaving(a)
	a.outgoing = map[string]*outgoing{m.plan.ID: m}
	var check sync.WaitGroup
	check.Go(func() { m.plan.Transfer, m.plan.Next = "lanes", nil })
	if err := client.SetBandwidth(t.Context(), m.plan.ID, 50e6); err != nil || m.bandwidth.Bits() != 50e6 {
		t.Errorf("%d bit/s, %v", m.bandwidth.Bits(), err)
	}
	check.Wait()
	m.itself = itselfBy(migration.Plan{Transfer: "qemu-mptcp"})
	agenttest.Refused(t, "QEMU sends by itself", client.SetBandwidth(t.Context(), m.plan.ID, 60e6), migration.CodeUsage,
		"limit m-00000001: ", "qemu-mptcp", "`godwit abort m-00000001`, and begin it again with --bandwidth")
}
