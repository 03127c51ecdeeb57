package lab

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/migration"
	"godwit/vm"
)

// TestLeaderless: a migration that nobody leads any more is what both sides show for a while.
func TestLeaderless(t *testing.T) {
	stays, goes := bothSides{vm.Running, false, true, false}, bothSides{vm.Running, false, true, true}
	stopped, dead := bothSides{vm.Paused, false, true, false}, bothSides{"", false, true, false}
	for name, c := range map[string]struct {
		looks []bothSides // one a second; the last goes on
		want  report.Outcome
		after int // looks
	}{
		"it runs on":                       {[]bothSides{stays}, report.Aborted, 5},
		"it runs on, and nobody there":     {[]bothSides{{vm.Running, false, false, false}}, report.Aborted, 5},
		"it runs until QEMU stops it":      {[]bothSides{goes}, "", 0},
		"QEMU stops it":                    {[]bothSides{goes, goes, goes, goes, goes, goes, stopped}, report.InDoubt, 11},
		"QEMU failed to send it":           {[]bothSides{goes, goes, goes, stays}, report.Aborted, 8},
		"it stands still":                  {[]bothSides{stopped}, report.InDoubt, 5},
		"it stands still, and is sent":     {[]bothSides{{vm.Paused, false, true, true}}, "", 0},
		"it stands still, nobody there":    {[]bothSides{{vm.Paused, false, false, false}}, "", 0},
		"its QEMU is gone":                 {[]bothSides{dead}, report.Failed, 5},
		"it came there":                    {[]bothSides{{vm.Paused, true, true, false}}, "", 0},
		"it came there, gone here":         {[]bothSides{stopped, stopped, stopped, {"", true, true, false}}, "", 0},
		"it was stopped, and went on":      {[]bothSides{stopped, stopped, stays}, report.Aborted, 7},
		"it ran, stood still, and is gone": {[]bothSides{stays, stopped, stopped, dead}, report.Failed, 8},
	} {
		var l leaderless
		at := time.Unix(1000, 0)
		got, after := report.Outcome(""), 0
		for i := 0; i < 20 && got == ""; i++ {
			var why string
			if got, why = l.see(at.Add(time.Duration(i)*time.Second), c.looks[min(i, len(c.looks)-1)]); got != "" {
				if after = i; why == "" {
					t.Errorf("%s: it does not say why", name)
				}
			}
		}
		if got != c.want || after != c.after {
			t.Errorf("%s: %q after %d looks, not %q after %d", name, got, after, c.want, c.after)
		}
		if stood := slices.ContainsFunc(c.looks, func(at bothSides) bool { return at.source == vm.Paused }); l.stood != stood {
			t.Errorf("%s: it stood still: %v", name, l.stood)
		}
	}
}

// TestNobodyLeads: of a migration whose source's agent was killed for good the report has what was heard of it until
// then, and a code for why it came to nothing.
func TestNobodyLeads(t *testing.T) {
	r := aRun()
	at := func(s float64) int64 { return r.zero.UnixNano() + int64(s*1e9) }
	m := &move{
		guest: "web", from: "a", to: "a", step: &scenario.Migrate{Mode: "auto", Transfer: "auto", Network: "auto"}, asked: time.Unix(0, at(1)), over: time.Unix(0, at(9)),
		started: map[migration.Phase]time.Time{migration.Check: time.Unix(0, at(1)), migration.Prepare: time.Unix(0, at(2)), migration.Copy: time.Unix(0, at(3))},
		early:   &record.Report{From: "a", To: "b", Mode: "precopy", Transfer: "lanes", Network: "mptcp", Predicted: &record.Prediction{MigrationS: 5, DowntimeMS: 50, WireBytes: 7}},
	}
	m.judge(report.Aborted, migration.CodeAgent, "the guest runs on at the source")
	got := r.migrationReport(t.Context(), m)
	if got.Outcome != report.Aborted || got.Code != migration.CodeAgent || got.Reason != "the guest runs on at the source" {
		t.Errorf("%s (%s): %s", got.Outcome, got.Code, got.Reason)
	}
	if got.To != "b" || got.Mode != "precopy" || got.Transfer != "lanes" || got.Network != "mptcp" || got.Predicted == nil || *got.Predicted.WireBytes != 7 || got.WhyNull["predicted"] != "" {
		t.Errorf("%+v", got)
	}
	want := []report.Phase{{Name: "check", StartS: 0, EndS: 1}, {Name: "prepare", StartS: 1, EndS: 2}, {Name: "copy", StartS: 2, EndS: 8}}
	if !slices.Equal(got.Phases, want) {
		t.Errorf("phases %+v, want %+v", got.Phases, want)
	}
	for _, c := range []struct {
		stood  bool
		events []record.Event
		why    string
	}{
		{false, nil, report.NotPaused},
		{true, nil, "does not tell until when"},
		{false, []record.Event{{Name: migration.SourceSuspend, At: at(5)}}, "does not tell until when"},
	} {
		m.stood, m.events = c.stood, c.events
		if got := r.migrationReport(t.Context(), m).WhyNull["vm_downtime_ms"]; !strings.HasSuffix(got, c.why) {
			t.Errorf("seen to stand still %v, %d events: no VM downtime, as %q, want %q", c.stood, len(c.events), got, c.why)
		}
	}
	m.early, m.started = nil, nil
	if got := r.migrationReport(t.Context(), m); got.Mode != "auto" || got.Predicted != nil || len(got.Phases) != 0 {
		t.Errorf("nothing was heard: %+v", got)
	}
}

// TestStartsAgain: an agent that a step to come starts is not gone for good.
func TestStartsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		step  scenario.Step
		begun bool
		want  bool
	}{
		"later":                       {scenario.Step{Kill: &scenario.Kill{Agent: "a", Restart: true}}, false, true},
		"it was":                      {scenario.Step{Kill: &scenario.Kill{Agent: "a", Restart: true}}, true, false},
		"another":                     {scenario.Step{Kill: &scenario.Kill{Agent: "b", Restart: true}}, false, false},
		"nobody starts it":            {scenario.Step{Kill: &scenario.Kill{Agent: "a"}}, false, false},
		"in a phase of another guest": {scenario.Step{At: scenario.At{Guest: "db"}, Kill: &scenario.Kill{Agent: "a", Restart: true}}, false, true},
		"in a phase that cannot come": {scenario.Step{At: scenario.At{Guest: "web"}, Kill: &scenario.Kill{Agent: "a", Restart: true}}, false, false},
	} {
		r := aRun(c.step)
		if c.begun {
			r.steps = []stepDone{{step: &r.w.scenario.Steps[0]}}
		}
		if got := r.startsAgain("a", "web"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDeadEnd: what was let go and can have no end in a run is what its source's agent says of it, after a while; what
// may still end is waited for.
func TestDeadEnd(t *testing.T) {
	doubt := `{"id":"m-00000001","mode":"precopy","outcome":"in_doubt","requested":1}`
	runs := `{"id":"m-00000001","mode":"precopy","outcome":"","requested":1,"resumed":2,"memory_done":2}`
	starved := `{"id":"m-00000001","mode":"postcopy","outcome":"","requested":1,"resumed":2}`
	proven, open := `[{"id":"m-00000001","there":"its QEMU is gone","proven":true}]`, `[{"id":"m-00000001","there":"nobody answers"}]`
	later := scenario.Step{Exec: &scenario.Exec{Guest: "web"}}
	for name, c := range map[string]struct {
		report, doubts string
		steps          []scenario.Step
		restores, dead bool
		want           bool
		outcome        report.Outcome
	}{
		"in doubt, and nothing to come":   {doubt, open, nil, false, false, true, report.InDoubt},
		"in doubt, and steps to come":     {doubt, open, []scenario.Step{later}, false, false, false, ""},
		"in doubt until the cut is over":  {doubt, open, nil, true, false, false, ""},
		"in doubt for certain":            {doubt, proven, []scenario.Step{later}, true, false, true, report.InDoubt},
		"in doubt, and nobody there":      {doubt, open, []scenario.Step{later}, false, true, true, report.InDoubt},
		"it runs there":                   {runs, "[]", nil, false, false, false, ""},
		"it runs there, and nobody there": {runs, "[]", nil, false, true, true, ""},
		"its last pages are to come":      {starved, "[]", nil, false, false, false, ""},
		"it turned back":                  {`{"id":"m-00000001","outcome":"aborted","ended":3}`, "[]", nil, false, true, false, ""},
		"it may turn back":                {`{"id":"m-00000001","requested":1}`, "[]", nil, false, true, false, ""},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(c.report)) }) //nolint:errcheck // the client tells
		mux.HandleFunc("GET /v1/doubts", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(c.doubts)) })          //nolint:errcheck // the client tells
		r := aRun(c.steps...)
		r.hasWeb(t, mux)
		there := &hostAgent{host: topo.Host{Name: "b"}, done: make(chan struct{})}
		if c.dead {
			close(there.done)
		}
		r.w.agents["b"] = there
		r.w.scenario.Sites = append(r.w.scenario.Sites, scenario.Site{Name: "b", Hosts: 1})
		if c.restores {
			r.restoring.Add(1)
		}
		m := &move{guest: "web", from: "a", to: "b", id: "m-00000001", step: &scenario.Migrate{Guest: "web", To: "b"}}
		since := time.Time{}
		if r.deadEnd(t.Context(), r.w.agents["a"], m, &since) || since.IsZero() == c.want {
			t.Errorf("%s: the first look: since %v", name, since)
		}
		if since = time.Now().Add(-deadEndFor); !c.want {
			since = time.Time{}
		}
		if got := r.deadEnd(t.Context(), r.w.agents["a"], m, &since); got != c.want || m.judged != c.outcome || (m.judgedWhy != "") != c.want {
			t.Errorf("%s: %v, %q: %s", name, got, m.judged, m.judgedWhy)
		}
	}
}

// TestLeaderlessHearsTheDestination: only a destination's agent that answers says that the guest does not run there;
// one that is away may have it run.
func TestLeaderlessHearsTheDestination(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.Handler // nil: its agent is away
		want   bool
	}{
		"away":           {nil, false},
		"knows of none":  {http.NotFoundHandler(), false},
		"has it not run": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"id":"m-00000001"}`)) }), true},              //nolint:errcheck // the client tells
		"has it run":     {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"id":"m-00000001","resumed":2}`)) }), false}, //nolint:errcheck // the client tells
	} {
		r := aRun()
		source := &hostAgent{host: topo.Host{Name: "a"}}
		r.w.scenario.Sites = append(r.w.scenario.Sites, scenario.Site{Name: "b", Hosts: 1})
		r.w.agents["a"], r.w.agents["b"] = source, &hostAgent{host: topo.Host{Name: "b"}, client: api.NewClient(filepath.Join(t.TempDir(), "none.sock"))}
		if c.answer != nil {
			r.w.agents["b"] = anAgent(t, "b", c.answer)
		}
		for _, insecure := range []bool{false, true} { // whoever sent its memory
			m := &move{guest: "web", from: "a", to: "b", id: "m-00000001", step: &scenario.Migrate{Guest: "web", To: "b", InsecureTransfer: insecure}}
			seen := leaderless{outcome: report.Failed, since: time.Now().Add(-time.Minute)} // the source's QEMU is gone
			if got := r.leaderless(t.Context(), source, m, &seen); got != c.want || got != (m.judged == report.Failed) {
				t.Errorf("%s, insecure %v: %v, %q", name, insecure, got, m.judged)
			}
		}
	}
}

// TestWhereItRuns: a guest that runs at its destination is asked for there, also where its source's agent told nothing
// of it any more.
func TestWhereItRuns(t *testing.T) {
	for resumed, want := range map[string]string{"0": "a", "5": "b"} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"outcome":"","requested":1,"resumed":` + resumed + `}`)) //nolint:errcheck // the client tells
		})
		for name, ask := range map[string]func(*run, *move){
			"under way":  func(r *run, m *move) { r.landedThere(t.Context(), m) },
			"at the end": func(r *run, m *move) { r.lastWord(t.Context(), m) },
		} {
			r := aRun()
			r.w.scenario.Sites = append(r.w.scenario.Sites, scenario.Site{Name: "b", Hosts: 1})
			r.hasWeb(t, http.NewServeMux())
			r.w.agents["b"] = anAgent(t, "b", mux)
			ask(r, &move{guest: "web", id: "m-00000001", from: "a", to: "b"})
			if got := r.w.agentOf("web").host.Name; got != want {
				t.Errorf("%s, resumed %s: %s is asked", name, resumed, got)
			}
		}
	}
}
