package lab

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/migration"
)

// aRun is a run with steps and no network: evacuating a host without guests is nothing.
func aRun(steps ...scenario.Step) *run {
	s := &scenario.Scenario{
		Sites: []scenario.Site{{Name: "a", Hosts: 1}}, Guests: []scenario.Guest{{Name: "web", Site: "a"}},
		Steps: steps, End: scenario.End{Timeout: time.Minute},
	}
	return &run{
		w: &world{scenario: s, topo: &topo.Topo{}, agents: map[string]*hostAgent{}, where: map[string]string{}}, opts: Options{Tell: func(string) {}},
		zero: time.Now(), reached: map[int]bool{}, by: map[*scenario.Step]*move{}, never: map[*scenario.Step]bool{}, queue: map[string]chan struct{}{}, ending: make(chan struct{}), patience: time.Second,
	}
}

// A step that is due some time after a phase is not cut off by the end of the run: it is
// awaited. Where the run may not wait any longer, it was never reached.
func TestTheEndWaitsForStepsAfterAPhase(t *testing.T) {
	step := scenario.Step{At: scenario.At{Guest: "web", Phase: "settle", Plus: 100 * time.Millisecond}, Evacuate: &scenario.Evacuate{Host: "a", To: "a"}}
	begun := make(chan struct{})
	close(begun)
	at := func(r *run, ctx context.Context) {
		r.phaseBegan(ctx, &move{guest: "web"}, migration.Settle, time.Now())
	}

	r := aRun(step)
	at(r, t.Context())
	if r.awaitEnd(t.Context(), begun, nil) || len(r.steps) != 1 || len(r.unreached()) != 0 {
		t.Errorf("the run ended with %d of 1 steps done, unreached: %v", len(r.steps), r.unreached())
	}

	step.At.Plus = time.Hour
	r = aRun(step)
	ctx, cancel := context.WithCancel(t.Context())
	at(r, ctx)
	limit := make(chan time.Time, 1)
	limit <- time.Now()
	timedOut := r.awaitEnd(ctx, begun, limit)
	cancel()
	r.wg.Wait()
	if !timedOut || len(r.steps) != 0 || len(r.unreached()) != 1 {
		t.Errorf("timed out %v, %d steps done, unreached: %v", timedOut, len(r.steps), r.unreached())
	}
}

// aSlowAgent is an agent whose migration goes on until it is called off; begun is closed
// when it was asked for.
func aSlowAgent() (mux *http.ServeMux, begun chan struct{}) {
	begun, aborted := make(chan struct{}), make(chan struct{})
	mux = http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"id":"m-00000001"}`)) //nolint:errcheck // the client tells
		close(begun)
	})
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(http.ResponseWriter, *http.Request) {
		close(aborted)
	})
	mux.HandleFunc("GET /v1/migrations/{id}/events", func(w http.ResponseWriter, q *http.Request) {
		select {
		case <-aborted:
			w.Write([]byte(`{"over":true,"born":1}`)) //nolint:errcheck // the client tells
		case <-q.Context().Done():
		}
	})
	mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) {
		<-aborted
		w.Write([]byte(`{"outcome":"aborted","problem":{"code":"asked","text":"aborted on request"}}`)) //nolint:errcheck // the client tells
	})
	return mux, begun
}

// What is under way when a run is interrupted is called off, and has the outcome that its
// agent tells: none of the lab's making. A migration that waits for its turn does not begin
// any more.
func TestInterruptedRun(t *testing.T) {
	step := scenario.Step{Migrate: &scenario.Migrate{Guest: "web", To: "a"}}
	r := aRun(step, step)
	mux, begun := aSlowAgent()
	r.hasWeb(t, mux)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		for waiting := 0; waiting < 2; time.Sleep(time.Millisecond) { // both have their places
			r.mu.Lock()
			waiting = r.pending
			r.mu.Unlock()
		}
		cancel()
	}()
	if r.carryOut(ctx) {
		t.Error("it met its time limit")
	}
	if len(r.moves) != 1 {
		t.Fatalf("%d migrations", len(r.moves))
	}
	if never, steps := r.unreached(), r.series().Steps; len(never) != 1 || never[0] != "0s: migrate web to a" || len(steps) != 1 {
		t.Errorf("the second one never had its turn: %q, done %+v", never, steps)
	}
	if got := r.migrationReport(t.Context(), r.moves[0]); got.Outcome != report.Aborted || got.Reason != "aborted on request" {
		t.Errorf("%q, %s", got.Outcome, got.Reason)
	}
}

// TestEvacuationWithoutATurn: guests that waited for their turn when the run ended are told of.
func TestEvacuationWithoutATurn(t *testing.T) {
	r := aRun()
	r.hasWeb(t, http.NewServeMux())
	_, done := r.queued("web") // a migration that goes on
	defer done()
	r.evacuate(t.Context(), &scenario.Step{Evacuate: &scenario.Evacuate{Host: "a", To: "a"}})
	close(r.ending)
	r.wg.Wait()
	if len(r.troubles) != 1 || !strings.Contains(r.troubles[0], "the run ended before guest web could leave a") {
		t.Errorf("%q", r.troubles)
	}
}

// TestEvacuationOfNobody: a host on which no guest is when it is due has nothing to evacuate, which is told: one may be
// on its way there still.
func TestEvacuationOfNobody(t *testing.T) {
	r := aRun()
	var told []string
	r.opts.Tell = func(line string) { told = append(told, line) }
	step := &scenario.Step{Evacuate: &scenario.Evacuate{Host: "a"}}
	r.evacuate(t.Context(), step)
	if len(told) != 1 || !strings.Contains(told[0], "evacuate a") || !strings.Contains(told[0], "no guest is there") {
		t.Errorf("%q", told)
	}
	told = nil
	r.hasWeb(t, http.NewServeMux())
	_, done := r.queued("web") // a migration that goes on
	r.evacuate(t.Context(), step)
	close(r.ending)
	done()
	r.wg.Wait()
	if len(told) != 0 {
		t.Errorf("of one that has a guest: %q", told)
	}
}

// TestTurnsAreTakenTogether: of two evacuations of one host that begin at the same instant, one is first with every
// guest: where each was with some they waited for each other.
func TestTurnsAreTakenTogether(t *testing.T) {
	r := aRun()
	guests := make([]string, 50000)
	for i := range guests {
		guests[i] = strconv.Itoa(i)
	}
	var both sync.WaitGroup
	start := make(chan struct{})
	var first [2]int
	for i := range first {
		both.Go(func() {
			<-start
			for _, p := range r.queuedTogether(guests...) {
				if p.before == nil {
					first[i]++
				}
			}
		})
	}
	close(start)
	both.Wait()
	if first[0]*first[1] != 0 || first[0]+first[1] != len(guests) {
		t.Errorf("one is first with %d guests, the other with %d", first[0], first[1])
	}
}

// TestOrderOfLaterMoves: of steps of one time the report has the migrations in the order of the file, also of guests
// whose migrations before have their outcome.
func TestOrderOfLaterMoves(t *testing.T) {
	r := aRun()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		w.Write([]byte(`{"code":"busy","text":"web has enough of it"}`)) //nolint:errcheck // the client tells
	})
	r.hasWeb(t, mux)
	r.w.where["db"] = "a"
	for _, guest := range []string{"web", "db"} {
		_, done := r.queued(guest)
		done()
	}
	for range 100 {
		r.moves = nil
		for _, guest := range []string{"web", "db"} {
			r.queueMigrate(t.Context(), &scenario.Step{Migrate: &scenario.Migrate{Guest: guest, To: "a"}})
		}
		r.wg.Wait()
		if got := []string{r.moves[0].guest, r.moves[1].guest}; !slices.Equal(got, []string{"web", "db"}) {
			t.Fatalf("%q", got)
		}
	}
}

// An outcome is in doubt where an agent says so; where nobody answers it is not known.
func TestStanding(t *testing.T) {
	for _, c := range []struct {
		name          string
		report, there *record.Report
		outcome       report.Outcome
		reason        string
	}{
		{"nobody answers", nil, nil, "", "phase copy, and neither agent answered"},
		{"its destination has it", nil, &record.Report{Outcome: migration.Completed}, report.Completed, "so its destination says"},
		{"it runs there", nil, &record.Report{Resumed: 5}, "", "the guest runs at the destination"},
		{"its source is silent", nil, &record.Report{}, "", "its source's agent did not answer"},
		{"in doubt, and its destination has it", &record.Report{Outcome: migration.InDoubt}, &record.Report{Outcome: migration.Completed}, report.Completed, "so its destination says"},
		{"in doubt, and it runs there", &record.Report{Outcome: migration.InDoubt}, &record.Report{Resumed: 5}, "", "the guest runs at the destination"},
		{"handed over", &record.Report{Resumed: 5}, nil, "", "the guest runs at the destination"},
		{"being undone", &record.Report{}, &record.Report{}, "", "phase copy"},
	} {
		m := &move{phase: migration.Copy, report: c.report, there: c.there}
		if outcome, reason := m.standing(); outcome != c.outcome || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %q, %s", c.name, outcome, reason)
		}
		if told := m.told(); told != nil {
			out := report.Migration{WhyNull: map[string]string{}}
			if fillTold(&out, m, told); out.Outcome != c.outcome {
				t.Errorf("%s: reported as %q", c.name, out.Outcome)
			}
		}
	}
	data, err := json.Marshal(report.Migration{})
	if err != nil || !strings.Contains(string(data), `"outcome":null`) {
		t.Errorf("%s, %v", data, err)
	}
}

// TestToldByTheDestinationAlone: what its agent and the source's events told stands in the report of a
// migration whose source's agent stays dead.
func TestToldByTheDestinationAlone(t *testing.T) {
	r := aRun()
	r.w.scenario.Guests[0].Memory = 1 << 30
	at := func(s float64) int64 { return r.zero.UnixNano() + int64(s*1e9) }
	held := int64(3)
	m := &move{
		guest: "web", from: "a", to: "a", step: &scenario.Migrate{Mode: "auto", Transfer: "auto"}, asked: time.Unix(0, at(1)),
		started: map[migration.Phase]time.Time{migration.Check: time.Unix(0, at(1)), migration.Copy: time.Unix(0, at(2)), migration.Switch: time.Unix(0, at(5))},
		there: &record.Report{
			Outcome: migration.Completed, From: "a", To: "b", Mode: "precopy", Transfer: "lanes", Network: "mptcp", Requested: at(1.5), MemoryDone: at(5.5), Resumed: at(6),
			Handed: at(7), Ended: at(8), Held: &held, Phases: []record.PhaseSpan{{Name: migration.Handover, Start: at(6)}, {Name: migration.Settle, Start: at(7), End: at(8)}},
		},
	}
	got := r.migrationReport(t.Context(), m)
	if got.Outcome != report.Completed || !strings.Contains(got.Reason, "so its destination says") || got.To != "b" || got.Mode != "precopy" || got.Transfer != "lanes" || got.Network != "mptcp" {
		t.Errorf("%+v", got)
	}
	for name, v := range map[string][2]*float64{"migration_s": {got.MigrationS, new(5.0)}, "memory_s": {got.MemoryS, new(4.5)}, "switched_s": {got.SwitchedS, new(6.0)}} {
		if v[0] == nil || math.Abs(*v[0]-*v[1]) > 1e-6 {
			t.Errorf("%s: %v, want %v", name, v[0], *v[1])
		}
	}
	if got.TotalS != nil || got.WireBytes != nil || got.WhyNull["wire_bytes"] == "" || got.MemoryBytes == nil || *got.MemoryBytes != 1<<30 || got.HeldPackets == nil {
		t.Errorf("%+v", got)
	}
	var names []string
	for i, p := range got.Phases {
		names = append(names, p.Name)
		if i > 0 && p.StartS != got.Phases[i-1].EndS {
			t.Errorf("phases %+v", got.Phases)
		}
	}
	if strings.Join(names, " ") != "check copy switch handover settle" || math.Abs(got.Phases[4].EndS-7) > 1e-6 {
		t.Errorf("phases %+v", got.Phases)
	}
}

// TestTimesHaveOneBeginning: what counts from the request being accepted, added to when that was, is the moment by the
// run's clock; also where the agent was asked some time before that.
func TestTimesHaveOneBeginning(t *testing.T) {
	r := aRun()
	at := func(s float64) int64 { return r.zero.UnixNano() + int64(s*1e9) }
	m := &move{guest: "web", from: "a", to: "a", step: &scenario.Migrate{}, asked: time.Unix(0, at(1)),
		report: &record.Report{Outcome: migration.Completed, Requested: at(1.5), Resumed: at(6), Ended: at(7)}}
	got := r.migrationReport(t.Context(), m)
	if got.MigrationS == nil || got.SwitchedS == nil || math.Abs(got.RequestedS+*got.MigrationS-*got.SwitchedS) > 1e-6 {
		t.Errorf("requested after %v s, and switched %v s later, after %v s", got.RequestedS, *got.MigrationS, *got.SwitchedS)
	}
}

// How much memory the guest has is known of each migration, from the file; also where it was refused, or called off at once.
func TestMemoryOfEach(t *testing.T) {
	r := aRun()
	r.w.scenario.Guests = []scenario.Guest{{Name: "db", Memory: 1 << 28}, {Name: "web", Memory: 1 << 30}}
	for name, m := range map[string]*move{
		"refused":    {refusal: &migration.Problem{}},
		"called off": {report: &record.Report{Outcome: migration.Aborted, Ended: 1}},
		"completed":  {report: &record.Report{Outcome: migration.Completed, Ended: 1, MemoryBytes: 1 << 30}},
	} {
		m.guest, m.from, m.to, m.step = "web", "a", "a", &scenario.Migrate{To: "a"}
		if got := r.migrationReport(t.Context(), m); got.MemoryBytes == nil || *got.MemoryBytes != 1<<30 || got.WhyNull["memory_bytes"] != "" {
			t.Errorf("%s: %v, %q", name, got.MemoryBytes, got.WhyNull["memory_bytes"])
		}
	}
}

// What was not counted is null, also where it would be nothing.
func TestBytesNotCounted(t *testing.T) {
	r := aRun()
	phases := func(names ...migration.Phase) []record.PhaseSpan {
		var out []record.PhaseSpan
		for _, n := range names {
			out = append(out, record.PhaseSpan{Name: n})
		}
		return out
	}
	for _, c := range []struct {
		name string
		rep  record.Report
		want *int64
		why  string
	}{
		{"aborted in check", record.Report{Outcome: migration.Aborted, Phases: phases(migration.Check)}, nil, "not begun to send"},
		{"refused by a hook", record.Report{Outcome: migration.Refused, Phases: phases(migration.Check)}, nil, "not begun to send"},
		{"aborted in prepare", record.Report{Outcome: migration.Aborted, Phases: phases(migration.Check, migration.Prepare)}, nil, "not begun to send"},
		{"nothing was sent", record.Report{Outcome: migration.Aborted, Phases: phases(migration.Check, migration.Copy), WireBytes: map[string]int64{}}, new(int64), ""},
		{"under way as the run ended", record.Report{Phases: phases(migration.Check, migration.Copy)}, nil, "had no end"},
		{"the count was lost", record.Report{Outcome: migration.Completed, Phases: phases(migration.Check, migration.Copy)}, nil, "started again"},
	} {
		m := &move{guest: "web", from: "a", to: "a", step: &scenario.Migrate{}, report: &c.rep}
		got := r.migrationReport(t.Context(), m)
		if (got.WireBytes == nil) != (c.want == nil) || !strings.Contains(got.WhyNull["wire_bytes"], c.why) || got.WireBytes != nil && *got.WireBytes != *c.want {
			t.Errorf("%s: %v, %s", c.name, got.WireBytes, got.WhyNull["wire_bytes"])
		}
	}
}

// An abort that is due together with its migration waits until the agent has given that
// its id: it is not lost, and no step that went wrong.
func TestAbortOfAMigrationJustAskedFor(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	late := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/migrations", func(w http.ResponseWriter, _ *http.Request) {
		<-late
		w.Write([]byte(`{"id":"m-00000001"}`)) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("POST /v1/migrations/{id}/abort", func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, q.PathValue("id"))
	})
	r := aRun()
	r.hasWeb(t, mux)
	ctx, cancel := context.WithCancel(t.Context())
	r.queueMigrate(ctx, &scenario.Step{Migrate: &scenario.Migrate{Guest: "web", To: "a"}})
	aborted := make(chan error, 1)
	go func() { aborted <- r.abort(ctx, "web", nil) }()
	time.Sleep(20 * time.Millisecond)
	close(late)
	if err := <-aborted; err != nil {
		t.Error(err)
	}
	cancel()
	r.wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 || asked[0] != "m-00000001" {
		t.Errorf("asked to abort %q", asked)
	}
}
