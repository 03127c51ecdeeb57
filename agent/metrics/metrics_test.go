package metrics

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"godwit/agent/hook"
	"godwit/migration"
)

func newSet() *Set {
	return New(Build{"1.0", "go1", "paris", "paris"}, []Path{{"rome", "public-public"}, {"rome", "private-public"}})
}

// busy is a state with something everywhere.
func busy(context.Context) State {
	return State{
		Running: map[migration.Role]int{migration.AtSource: 1}, Phases: map[migration.Phase]int{migration.Copy: 1},
		Expires: time.Unix(1830000000, 0),
		Guests:  []Guest{{"web", "running", 1 << 28, migration.Copy}, {"web", "paused", 1, ""}, {"odd\xff", "prelaunch", 1, ""}, {"silent", "", 1, ""}},
	}
}

// scrape is what is served.
func scrape(t *testing.T, s *Set, look func(context.Context) State) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler(look).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// value is that of one series; it fails where there is none.
func value(t *testing.T, text, series string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no series %s in:\n%s", series, text)
	return 0
}

// words of the lists of package migration, by the label that has them.
func listed() map[string][]string {
	return map[string][]string{
		"role": words(migration.Roles), "phase": words(migration.Phases), "outcome": words(migration.Outcomes), "code": words(migration.Codes),
		"fate": words(migration.Fates), "event": events(), "result": words(hook.Results),
	}
}

// TestEveryWordIsServed: whatever is in the lists of words.go is there from the start, as
// the value of its label.
func TestEveryWordIsServed(t *testing.T) {
	text := scrape(t, newSet(), func(context.Context) State { return State{} })
	for label, list := range listed() {
		for _, word := range list {
			if !strings.Contains(text, fmt.Sprintf("%s=%q", label, word)) {
				t.Errorf("nothing has %s=%q", label, word)
			}
		}
	}
	for _, p := range migration.Phases {
		value(t, text, fmt.Sprintf("godwit_migration_phase_seconds_count{phase=%q}", p))
		value(t, text, fmt.Sprintf("godwit_migrations_in_phase{phase=%q}", p))
	}
	for _, m := range migration.Moments {
		value(t, text, fmt.Sprintf("godwit_events_total{event=%q}", m.Name))
	}
	for _, role := range migration.Roles {
		for _, o := range migration.Outcomes {
			value(t, text, fmt.Sprintf("godwit_migrations_total{outcome=%q,role=%q}", o, role))
		}
		for _, c := range migration.Codes {
			value(t, text, fmt.Sprintf("godwit_migration_problems_total{code=%q,role=%q}", c, role))
		}
	}
}

// TestNamesAreGood: promlint has nothing against a name, a type or a unit.
func TestNamesAreGood(t *testing.T) {
	text := scrape(t, newSet(), busy)
	var ours strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "godwit_") {
			ours.WriteString(line)
		}
	}
	found, err := promlint.New(strings.NewReader(ours.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestAllAreServed: what the list has is served, with its type, and nothing else of ours is.
func TestAllAreServed(t *testing.T) {
	text := scrape(t, newSet(), busy)
	want, got := map[string]string{}, map[string]string{}
	for _, m := range All {
		want[m.Name] = m.Type
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], "godwit_") {
			got[f[2]] = f[3]
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("served %v\nlisted %v", got, want)
	}
}

func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{Table(), LabelTable()} {
		if !strings.Contains(string(data), table+"\n") {
			t.Errorf("docs/metrics.md has not this table:\n%s", table)
		}
	}
	of := map[string][]string{}
	for _, m := range All {
		for _, l := range m.Labels {
			if was, ok := of[l.Name]; ok && !slices.Equal(was, l.Values) {
				t.Errorf("label %s has two lists: %v, %v", l.Name, was, l.Values)
			}
			of[l.Name] = l.Values
		}
	}
	for name, b := range buckets {
		if !slices.IsSorted(b) || len(b) > 20 {
			t.Errorf("buckets of %s: %v", name, b)
		}
	}
}

// TestCountersNeverGoBack: what cannot be meant is not counted, and breaks nothing.
func TestCountersNeverGoBack(t *testing.T) {
	s := newSet()
	bad := int64(-5)
	odd := []func(){
		func() { s.Outcome("referee", migration.Completed, nil) },
		func() { s.Outcome(migration.AtSource, "splendid", &migration.Problem{Code: "luck"}) },
		func() { s.Outcome(migration.AtSource, migration.Failed, &migration.Problem{Code: "luck\xff"}) },
		func() { s.Came(&bad) },
		func() { s.Came(nil) },
		func() { s.Told("LUNCH") },
		func() { s.HookCalled("LUNCH", "late") },
		func() { s.Synced(-time.Second) },
		func() {
			s.Became(map[migration.Fate]int{migration.Lost: 9}, map[migration.Fate]int{migration.Lost: 2, "bored": 4})
		},
		func() {
			down := -time.Minute
			s.Timed(Timed{map[migration.Phase]time.Duration{migration.Copy: -time.Hour, "lunch": 1}, map[string]time.Duration{TotalTime: 1 << 62, "x": 1}, &down})
		},
	}
	for _, f := range odd {
		f()
	}
	c := s.Carrier("rome")
	for _, n := range []int64{-7, 100, 60, -1 << 62, 130} {
		c.Carried(Carried{map[string]int64{"public-public": n, "no-such": n}, n, n, n}, false)
	}
	s.Carrier("nowhere").Carried(Carried{Wire: map[string]int64{"public-public": 1}}, true)
	text := scrape(t, s, busy)
	for series, want := range map[string]float64{
		`godwit_migration_wire_bytes_total{path="public-public",peer="rome"}`: 130, `godwit_migration_disk_bytes_total`: 130,
		`godwit_migration_read_bytes_total`: 130, `godwit_migration_sent_bytes_total`: 130, `godwit_held_packets_total`: 0,
		`godwit_connections_total{fate="lost"}`: 0, `godwit_migration_phase_seconds_sum{phase="copy"}`: 0, `godwit_migration_phase_seconds_count{phase="copy"}`: 0,
		`godwit_migration_time_seconds_count{time="total"}`: 0, `godwit_migration_vm_downtime_seconds_count`: 0, `godwit_journal_sync_seconds_count`: 0,
		`godwit_migrations_total{outcome="failed",role="source"}`: 1,
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	for _, word := range []string{"referee", "splendid", "luck", "LUNCH", "lunch", "bored", "no-such", "nowhere", "prelaunch"} {
		if strings.Contains(text, word) {
			t.Errorf("%q is served", word)
		}
	}
}

// TestCarriedOnce: bytes count as they come, once, also when somebody looks at them late.
func TestCarriedOnce(t *testing.T) {
	s := newSet()
	c := s.Carrier("rome")
	sum := func() float64 { return value(t, scrape(t, s, busy), "godwit_migration_disk_bytes_total") }
	for i, step := range []struct {
		n     int64
		ended bool
		want  float64
	}{{10, false, 10}, {10, false, 10}, {25, false, 25}, {40, true, 40}, {25, false, 40}, {99, true, 40}} {
		c.Carried(Carried{Disk: step.n}, step.ended)
		if got := sum(); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	s.Carrier("rome").Carried(Carried{Disk: 2}, true)
	if got := sum(); got != 42 {
		t.Errorf("two migrations: %v", got)
	}
	goesOn := s.Carrier("rome")
	goesOn.Had(Carried{Disk: 1000})
	goesOn.Carried(Carried{Disk: 1008}, true)
	if got := sum(); got != 50 {
		t.Errorf("what an earlier agent has counted: %v", got)
	}
}

// TestGuests: names are labels as long as the guests are here, in whatever state.
func TestGuests(t *testing.T) {
	text := scrape(t, newSet(), busy)
	for series, want := range map[string]float64{
		`godwit_guest_status{guest="web",status="running"}`: 1, `godwit_guest_memory_bytes{guest="web"}`: 1 << 28,
		`godwit_guest_migration_phase{guest="web",phase="copy"}`: 1, `godwit_guests{status="running"}`: 1, `godwit_guests{status="paused"}`: 0,
		`godwit_guests{status="other"}`: 2, `godwit_guest_status{guest="silent",status="other"}`: 1, "godwit_guest_status{guest=\"odd\uFFFD\",status=\"other\"}": 1,
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if gone := scrape(t, newSet(), func(context.Context) State { return State{} }); strings.Contains(gone, "guest=") {
		t.Error("a guest that is not here is served")
	}
}

// TestScrapesAreBounded: who asks while as many as may are being answered hears so at once.
func TestScrapesAreBounded(t *testing.T) {
	s, release := newSet(), make(chan struct{})
	looking := make(chan struct{}, scrapesMost)
	handler := s.Handler(func(context.Context) State { looking <- struct{}{}; <-release; return State{} })
	ended := make(chan int)
	for range scrapesMost {
		go func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			ended <- w.Code
		}()
	}
	for range scrapesMost {
		<-looking
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", w.Code)
	}
	close(release)
	for range scrapesMost {
		if code := <-ended; code != http.StatusOK {
			t.Errorf("one of %d: %d", scrapesMost, code)
		}
	}
}

func TestNilCountsNothing(t *testing.T) {
	var s *Set
	s.Outcome(migration.AtSource, migration.Completed, nil)
	s.Timed(Timed{Times: map[string]time.Duration{TotalTime: 1}})
	s.Carrier("rome").Carried(Carried{Disk: 1}, true)
	s.Told(migration.SourceSuspend)
	s.HookCalled(migration.SourceSuspend, hook.Done)
	s.Synced(1)
	s.Became(nil, map[migration.Fate]int{migration.Lost: 1})
}

// TestCertificateEnds: that of a host is served where it is known, and is not 1970 else.
func TestCertificateEnds(t *testing.T) {
	const series = "godwit_certificate_expiry_timestamp_seconds"
	if got := value(t, scrape(t, newSet(), busy), series); got != 1830000000 {
		t.Errorf("%f", got)
	}
	if text := scrape(t, newSet(), func(context.Context) State { return State{} }); strings.Contains(text, "\n"+series) {
		t.Error("one that is not known is served")
	}
}

// TestAlerts: what the page asks for, in alerts and elsewhere, is served.
func TestAlerts(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, m := range All {
		served[m.Name] = true
		if m.Type == histogram {
			served[m.Name+"_bucket"], served[m.Name+"_sum"], served[m.Name+"_count"] = true, true, true
		}
	}
	for _, name := range regexp.MustCompile(`\bgodwit_[a-z_]+`).FindAllString(string(page), -1) {
		if !served[name] {
			t.Errorf("docs/metrics.md has %s, which is not served", name)
		}
	}
}
