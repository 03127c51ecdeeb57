package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/lanes"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm"
)

// counting is served with everything that its metrics ask.
func counting(t *testing.T) (*Agent, *api.Client) {
	t.Helper()
	a, client := served(t)
	a.guests = guests.In(t.TempDir())
	a.detours = detour.New("", config.Network{}, map[string]*detour.Detour{})
	return a, client
}

// metric is the value of one series now, -1 where there is none.
func metric(t *testing.T, client *api.Client, series string) float64 {
	t.Helper()
	var text bytes.Buffer
	if err := client.Metrics(t.Context(), &text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		var v float64
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			if _, err := fmt.Sscan(rest, &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// metricsAre compares series with what they should be.
func metricsAre(t *testing.T, client *api.Client, want map[string]float64) {
	t.Helper()
	for series, v := range want {
		if got := metric(t, client, series); got != v {
			t.Errorf("%s is %v, want %v", series, got, v)
		}
	}
}

// TestSourceIsCounted: a migration that leaves is seen while it runs, and counted once when
// it has its outcome; its bytes as they are known, also where the report takes some back.
func TestSourceIsCounted(t *testing.T) {
	a, client := counting(t)
	underCare(t, a.guests, "web", guests.New(care.Held{Description: config.Description{Name: "web", Memory: 1 << 28}}, nil))
	m := leaving(a)
	rec, at := m.rec, time.Now()
	rec.Edit(func(r *record.Report) { r.Requested = rec.Stamp(at) })
	rec.Enter(migration.Check, at)
	rec.Enter(migration.Copy, at.Add(time.Second))
	rec.Event(migration.SourceSuspend)
	m.progress(record.CopyProgress{What: "disk", Wire: map[string]int64{"public-public": 800}, Sent: 60})
	metricsAre(t, client, map[string]float64{`godwit_migration_disk_bytes_total`: 60, `godwit_migration_wire_bytes_total{path="public-public",peer="rome"}`: 800})
	rec.Edit(func(r *record.Report) {
		r.WireBytes, r.Outcome = map[string]int64{"public-public": 1000}, migration.InDoubt
	})
	metricsAre(t, client, map[string]float64{
		`godwit_migrations_running{role="source"}`: 1, `godwit_migrations_in_phase{phase="copy"}`: 1, `godwit_migrations_in_doubt{role="source"}`: 1,
		`godwit_guest_migration_phase{guest="web",phase="copy"}`: 1, `godwit_guests{status="other"}`: 1, `godwit_events_total{event="SOURCE_SUSPEND"}`: 1,
		`godwit_migration_wire_bytes_total{path="public-public",peer="rome"}`: 1000, `godwit_migrations_total{outcome="completed",role="source"}`: 0,
	})
	rec.Edit(func(r *record.Report) {
		r.WireBytes, r.DiskBytes = map[string]int64{"public-public": 900}, 70
		r.DataPath = &record.DataPath{ReadBytes: 50, SentBytes: 40}
		r.Resumed, r.MemoryDone = rec.Stamp(at.Add(3*time.Second)), rec.Stamp(at.Add(-time.Hour))
		r.LastTick, r.FirstTick = &record.Tick{At: at.UnixNano()}, &record.Tick{At: at.Add(40 * time.Millisecond).UnixNano()}
	})
	rec.End(migration.Completed, nil, at.Add(4*time.Second))
	metricsAre(t, client, map[string]float64{
		`godwit_migrations_running{role="source"}`: 0, `godwit_migrations_in_phase{phase="copy"}`: 0, `godwit_migrations_in_doubt{role="source"}`: 0,
		`godwit_guest_migration_phase{guest="web",phase="copy"}`:              -1,
		`godwit_migrations_total{outcome="completed",role="source"}`:          1,
		`godwit_migration_phase_seconds_sum{phase="copy"}`:                    3,
		`godwit_migration_time_seconds_sum{time="migration"}`:                 3,
		`godwit_migration_time_seconds_count{time="memory"}`:                  0, // before the request
		`godwit_migration_time_seconds_sum{time="total"}`:                     4,
		`godwit_migration_vm_downtime_seconds_sum`:                            0.04,
		`godwit_migration_wire_bytes_total{path="public-public",peer="rome"}`: 1000,
		`godwit_migration_disk_bytes_total`:                                   70,
		`godwit_migration_read_bytes_total`:                                   50,
		`godwit_migration_sent_bytes_total`:                                   40,
	})
	rec = leaving(a).rec
	rec.End(migration.Aborted, &migration.Problem{Code: migration.CodePath, Text: "cut"}, time.Now())
	metricsAre(t, client, map[string]float64{
		`godwit_migrations_total{outcome="aborted",role="source"}`: 1, `godwit_migration_problems_total{code="path",role="source"}`: 1,
		`godwit_migration_time_seconds_count{time="total"}`: 1,
	})
	if _, err := a.Migrate(migration.Request{Guest: "nobody", To: "rome"}); err == nil {
		t.Fatal("a guest that is not there left")
	}
	metricsAre(t, client, map[string]float64{
		`godwit_migrations_total{outcome="refused",role="source"}`: 1, `godwit_migration_problems_total{code="unknown_guest",role="source"}`: 1,
	})
}

// TestNextTryIsCounted: what a migration that begins again carries counts beside what it had, and what has left the
// uplinks goes on.
func TestNextTryIsCounted(t *testing.T) {
	a, client := counting(t)
	m := leaving(a)
	m.guest = guests.New(care.Held{}, nil)
	wire := func(n int64) map[string]int64 { return map[string]int64{"public-public": n} }
	at := time.Now().Add(-5 * time.Second)
	m.rec.Enter(migration.Check, at)
	m.rec.Enter(migration.Copy, at.Add(time.Second))
	m.progress(record.CopyProgress{What: record.CopyOfDisk, Wire: wire(100), Sent: 60})
	m.rec.Edit(func(r *record.Report) {
		r.WireBytes, r.DataPath = wire(800), &record.DataPath{ReadBytes: 50, SentBytes: 40}
	})
	m.newEpoch(migration.Source{Course: migration.Forward, Epoch: 3, Tries: 1})
	m.progress(record.CopyProgress{What: record.CopyOfDisk, Wire: wire(900), Sent: 10})
	m.progress(record.CopyProgress{What: record.CopyOfMemory, Wire: wire(1000), DataPath: &record.DataPath{ReadBytes: 30, SentBytes: 20}})
	metricsAre(t, client, map[string]float64{
		`godwit_migration_wire_bytes_total{path="public-public",peer="rome"}`: 1000, `godwit_migration_disk_bytes_total`: 70,
		`godwit_migration_read_bytes_total`: 80, `godwit_migration_sent_bytes_total`: 60,
		`godwit_migration_phase_seconds_sum{phase="check"}`: 1, `godwit_migration_phase_seconds_count{phase="copy"}`: 1,
	})
	if took := metric(t, client, `godwit_migration_phase_seconds_sum{phase="copy"}`); took < 4 {
		t.Errorf("the copy that came to nothing took %v s", took)
	}
}

// takesMemory is a machine that is asked to send its memory, and has not begun.
type takesMemory struct{ runs }

func (takesMemory) Migrate(context.Context, vm.MigrateOptions) error { return nil }

// TestRefillIsCounted: what lanes carry that bring what is missing counts beside what those before had carried.
func TestRefillIsCounted(t *testing.T) {
	a, client := counting(t)
	m := leaving(a)
	m.guest, m.link = guests.New(care.Held{}, takesMemory{}), linked(t, m.plan.From, m.plan.To, http.NotFoundHandler())
	m.guest.Remember(func(h *care.Held) { h.Dir = t.TempDir() })
	m.rec.Edit(func(r *record.Report) {
		r.DiskBytes, r.DataPath = 70, &record.DataPath{ReadBytes: 50, SentBytes: 40}
	})
	counts := func(read, sent float64) {
		t.Helper()
		metricsAre(t, client, map[string]float64{
			`godwit_migration_disk_bytes_total`: 70, `godwit_migration_read_bytes_total`: read, `godwit_migration_sent_bytes_total`: sent,
		})
	}
	counts(50, 40)
	if err := m.openRefill(t.Context(), lanes.NewKey()); err != nil {
		t.Fatal(err)
	}
	defer m.work.release()
	counts(50, 40)
	m.progress(record.CopyProgress{What: record.CopyOfRest, DataPath: &record.DataPath{ReadBytes: 30, SentBytes: 20}})
	counts(80, 60)
}

// TestOpaqueStreamIsNoted: whoever watches, and whoever reads the report, hears once why QEMU's
// stream is passed on as it is, and nothing where it is not.
func TestOpaqueStreamIsNoted(t *testing.T) {
	a, _ := served(t)
	m := leaving(a)
	m.progress(record.CopyProgress{DataPath: &record.DataPath{}})
	if notes := m.rec.Snapshot().Notes; len(notes) != 0 {
		t.Fatalf("noted: %q", notes)
	}
	for range 3 {
		m.progress(record.CopyProgress{DataPath: &record.DataPath{Opaque: `section "dirty-bitmap"`}})
	}
	if notes := m.rec.Snapshot().Notes; len(notes) != 1 || !strings.Contains(notes[0], `section "dirty-bitmap"`) {
		t.Errorf("noted: %q", notes)
	}
	told := 0
	events := m.rec.Watch(t.Context(), 0).Events
	for _, e := range events {
		if e.Kind == "note" && strings.Contains(e.Text, "passed on as it is") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestDestinationIsCounted: connections count by their fate when the guest has come, and
// those through the tunnel again when that ends.
func TestDestinationIsCounted(t *testing.T) {
	a, client := counting(t)
	a.config.Host, a.config.State = "rome", t.TempDir()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	rec := record.New("rome", plan, time.Now())
	a.records.Add(rec)
	a.follow(rec, plan)
	held := int64(12)
	rec.Edit(func(r *record.Report) {
		r.Held, r.WireBytes = &held, map[string]int64{"public-public": 1000} // of the source's, which counts them
		r.Survival = &record.Survival{Total: 3, Moved: 1, Tunnelled: 2, Connections: []record.Survivor{{Fate: migration.Moved}, {Fate: migration.Tunnelled}, {Fate: migration.Tunnelled}}}
	})
	metricsAre(t, client, map[string]float64{`godwit_migrations_running{role="destination"}`: 1, `godwit_connections_total{fate="moved"}`: 0})
	rec.End(migration.Completed, nil, time.Now())
	metricsAre(t, client, map[string]float64{
		`godwit_connections_total{fate="moved"}`: 1, `godwit_connections_total{fate="tunnelled"}`: 2, `godwit_held_packets_total`: 12,
		`godwit_migrations_total{outcome="completed",role="destination"}`: 1, `godwit_migrations_total{outcome="completed",role="source"}`: 0,
		`godwit_migration_time_seconds_count{time="total"}`: 0,
	})
	a.settleSurvival(detour.Detour{ID: plan.ID + "-paris"}, true)
	metricsAre(t, client, map[string]float64{
		`godwit_connections_total{fate="moved"}`: 1, `godwit_connections_total{fate="tunnelled"}`: 2, `godwit_connections_total{fate="lost"}`: 2,
	})
}

// TestDoubtIsCountedAtTheSource: a migration that the destination's word has come into doubt is counted here, too, and
// once, whether the release was answered by then or is asked for still.
func TestDoubtIsCountedAtTheSource(t *testing.T) {
	for _, landed := range []bool{true, false} {
		a, client := counting(t)
		m := leaving(a)
		m.state = sourceDoing(t, migration.Release)
		if landed {
			m.state = sourceDoing(t, migration.AwaitLanding)
		}
		for range 2 {
			m.seeVanished("its QEMU is gone")
			if !landed {
				next := m.state
				next.InDoubt = true
				m.setState(next)
			}
		}
		m.rec.Edit(func(r *record.Report) { r.Outcome = "" }) // it has the release, and waits
		if !landed {
			m.seeVanished("its QEMU is gone")
		}
		metricsAre(t, client, map[string]float64{`godwit_migrations_total{outcome="in_doubt",role="source"}`: 1})
	}
}

func TestDetoursAreCounted(t *testing.T) {
	a, client := counting(t)
	config := tunnel.Config{Kind: tunnel.Auto} // unless another is asked for: WireGuard
	for id, d := range map[string]*detour.Detour{
		"a": {Tunnel: config, Away: []netstate.Away{{}, {}}},
		"b": {Tunnel: config, Leased: true, Until: time.Now().Add(time.Hour), Visiting: []netstate.Visiting{{Tunnel: "gwt-x"}}},
		"c": {Leased: true, Tunnel: config, Visiting: []netstate.Visiting{{}}}, // at home, its tunnel has ended
	} {
		d.ID = id
		place(a, d)
	}
	a.unread = map[string]string{"m-00000009": "it has holes"}
	metricsAre(t, client, map[string]float64{
		`godwit_detours{by="underway"}`: 1, `godwit_detours{by="leased"}`: 1, `godwit_detours{by="kept"}`: 1, `godwit_tunnels{kind="wireguard"}`: 2,
		`godwit_detour_addresses{place="away"}`: 2, `godwit_detour_addresses{place="visiting"}`: 1, `godwit_journals_unread`: 1,
	})
}

// TestMetricsOverHTTP: where the configuration says so, GET /metrics and nothing else; a
// port in use is one error, before anything is touched.
func TestMetricsOverHTTP(t *testing.T) {
	a, _ := counting(t)
	if ln, err := a.listenMetrics(t.Context()); ln != nil || err != nil {
		t.Fatalf("asked for nowhere: %v, %v", ln, err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.config.Metrics = taken.Addr().String()
	if _, err := a.listenMetrics(t.Context()); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) || !strings.Contains(err.Error(), "in use; end what has that port") {
		t.Errorf("a port in use: %v", err)
	}
	a.config.Metrics = taken.Addr().String()
	taken.Close()
	ln, err := a.listenMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.serveMetrics(t.Context(), ln)
	for _, c := range []struct {
		method, path string
		status       int
	}{{"GET", "/metrics", 200}, {"HEAD", "/metrics", 200}, {"POST", "/metrics", 405}, {"GET", "/", 404}, {"GET", "/v1/host", 404}, {"GET", "/v1/migrations", 404}, {"POST", "/v1/shutdown", 404}} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+ln.Addr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || err != nil {
			t.Errorf("%s %s: %s, %v", c.method, c.path, resp.Status, err)
		}
		if ours := strings.Contains(string(data), "godwit_host_info{"); ours != (c.status == 200 && c.method == "GET") {
			t.Errorf("%s %s: %.200s", c.method, c.path, data)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
