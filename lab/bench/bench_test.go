package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"godwit/lab"
	"godwit/lab/report"
	"godwit/lab/scenario"

	"github.com/google/go-cmp/cmp"
)

// TestTables: every scenario is one, and every aim names what its row measures.
func TestTables(t *testing.T) {
	for _, table := range []Table{Handover(), Memory()} {
		for _, row := range table.Rows {
			for _, v := range row.Variants {
				s, err := scenario.Parse(row.Name+"/"+v.Name, []byte(v.Scenario))
				if err != nil {
					t.Errorf("%s %s %s: %v", table.Name, row.Name, v.Name, err)
				} else if len(s.Guests) != 1 {
					t.Errorf("%s: %d guests", row.Name, len(s.Guests))
				}
			}
			for _, a := range row.Aims {
				if !row.has(a) {
					t.Errorf("%s %s: aim %+v names what is not there", table.Name, row.Name, a)
				}
			}
		}
	}
}

// rowNamed is a row of the handover table, and the scenario of its first variant.
func rowNamed(t *testing.T, name string) (Row, *scenario.Scenario) {
	t.Helper()
	for _, row := range Handover().Rows {
		if row.Name == name {
			s, err := scenario.Parse(name, []byte(row.Variants[0].Scenario))
			if err != nil {
				t.Fatal(err)
			}
			return row, s
		}
	}
	t.Fatalf("no row %s", name)
	return Row{}, nil
}

// between is the RTT of two sites, ms; that of a site and the internet where they are the same.
func between(s *scenario.Scenario, a, b string) float64 {
	var sum time.Duration
	for _, site := range s.Sites {
		if site.Name == a || site.Name == b {
			sum += 2 * site.Uplinks[0].Delay
		}
	}
	return sum.Seconds() * 1000
}

// TestRoundTrips: the limits are of the links as they are in the scenarios.
func TestRoundTrips(t *testing.T) {
	_, s := rowNamed(t, "idle")
	if r := between(s, "montreal", "sanjose"); s.Clients[0].At != "sanjose" || s.Guests[0].Site != "montreal" || r != rtt {
		t.Errorf("client at %s, guest at %s, RTT %g", s.Clients[0].At, s.Guests[0].Site, r)
	}
	for name, limit := range map[string]func(r float64) float64{
		"follow-1":   func(r float64) float64 { return 2*r + 50 },
		"follow-100": func(r float64) float64 { return 3*r + 100 },
	} {
		row, s := rowNamed(t, name)
		r := between(s, "montreal", "montreal") + between(s, "montreal", "sanjose")
		if a := row.Aims[0]; s.Clients[0].At != scenario.Internet || a.Measure != "followed" || a.AtMost != limit(r) {
			t.Errorf("%s: client at %s, r %g, aim %+v", name, s.Clients[0].At, r, a)
		}
		connections := 0
		for _, flow := range s.Traffic {
			connections += flow.Connections
		}
		if a := row.Aims[1]; float64(connections) != a.AtMost || name != fmt.Sprint("follow-", connections) {
			t.Errorf("%s: %d connections, aim %+v", name, connections, a)
		}
	}
	_, s = rowNamed(t, "paper") // Le & Nahum, Table I
	for pair, want := range map[[2]string]float64{{"sanjose", "dallas"}: 43, {"sanjose", "montreal"}: 71, {"dallas", "montreal"}: 43} {
		if r := between(s, pair[0], pair[1]); r != want {
			t.Errorf("RTT %v: %g, want %g", pair, r, want)
		}
	}
}

// TestHalfOfTheLink: the datagrams take half of it.
func TestHalfOfTheLink(t *testing.T) {
	_, s := rowNamed(t, "udp")
	if flow, link := s.Traffic[1], s.Sites[0].Uplinks[0].Rate; flow.Kind != "udp" || 2*flow.Rate != link {
		t.Errorf("%s at %d of a link of %d", flow.Kind, flow.Rate, link)
	}
}

// TestOwnNumbers: a gap is held against the downtime of its own run, and a run whose guest
// stayed where it was says nothing of a move.
func TestOwnNumbers(t *testing.T) {
	run := func(outcome report.Outcome) *report.Report {
		return &report.Report{
			Migrations: []report.Migration{{Outcome: outcome, Reason: "called off", NetworkDowntimeMS: number(100), VMDowntimeMS: number(60)}},
			Traffic: []report.Traffic{{Name: "ticks", ServiceGapMS: number(90), Mbps: report.Windows{After: number(5)},
				RecordsLost: new(int64(1)), RecordsRepeated: new(int64(2)), Corrupt: new(int64(3))}},
		}
	}
	for _, c := range []struct {
		m    Measure
		want float64
	}{{gapOverNetwork("ticks"), -10}, {gapOverVM("ticks"), 30}, {damaged("ticks"), 6}, {settled("ticks")[0], 5}} {
		if got, why := c.m.Of(run(report.Completed)); got == nil || *got != c.want {
			t.Errorf("%s: %v %s, want %g", c.m.Name, got, why, c.want)
		}
		if got, why := c.m.Of(run(report.Aborted)); got != nil || why != "aborted: called off" {
			t.Errorf("%s of a guest that stayed: %v, %q", c.m.Name, got, why)
		}
	}
	ratio := both("ratio", "", networkDowntime, serviceGap("ticks"), func(_, _ float64) float64 { return math.Inf(1) })
	if got, why := ratio.Of(run(report.Completed)); got != nil || why == "" {
		t.Errorf("divided by nothing: %v, %q", got, why)
	}
}

// TestFollowed: connections that were waited for again have followed when the last wait ended,
// but for the time in which the guest looked whether that lasts.
func TestFollowed(t *testing.T) {
	m := report.Migration{Outcome: report.Completed, RequestedS: 6, SwitchedS: number(8), Steps: []report.Step{
		{Name: "connections follow", AtS: 2.5, MS: 100}, {Name: "retire old address", AtS: 2.6}, {Name: "connections follow", AtS: 3, MS: 50}}}
	if got, why := followed.Of(&report.Report{Migrations: []report.Migration{m}}); got == nil || *got != 1050-followKept {
		t.Errorf("%v %s", got, why)
	}
	m.Steps = []report.Step{{Name: lastCame, AtS: 2.1}, {Name: lastCame, AtS: 2.25}, {Name: "reach guest", AtS: 2.3}, {Name: "connections follow", AtS: 2.5, MS: 100}, {Name: "connections follow", AtS: 3, MS: 50}}
	if got, why := followed.Of(&report.Report{Migrations: []report.Migration{m}}); got == nil || *got != 250 {
		t.Errorf("the guest's kernel said when: %v %s", got, why)
	}
}

func number(f float64) *float64 { return &f }

func TestStats(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Stats
	}{
		{nil, Stats{}},
		{[]float64{3}, Stats{N: 1, Median: 3, Low: 3, High: 3}},
		{[]float64{5, 1, 3}, Stats{N: 3, Median: 3, Low: 1, High: 5}},
		{[]float64{4, 1, 3, 2}, Stats{N: 4, Median: 2.5, Low: 1, High: 4}},
	} {
		var values []value
		for _, n := range c.values {
			values = append(values, value{n: n})
		}
		if diff := cmp.Diff(c.want, statsOf(values)); diff != "" {
			t.Errorf("%v: %s", c.values, diff)
		}
	}
}

// scripted gives P 10 s a run, and L 4, 5, and then nothing.
func scripted() func(context.Context, *scenario.Scenario, lab.Options) (*report.Report, error) {
	runs := 0
	return func(_ context.Context, s *scenario.Scenario, o lab.Options) (*report.Report, error) {
		seconds, outcome := number(10), report.Completed
		if strings.HasSuffix(s.Name, "lanes") {
			runs++
			seconds = number(float64(3 + runs))
			if runs == 3 {
				outcome = report.Aborted
			}
		}
		r := &report.Report{Migrations: []report.Migration{{Outcome: outcome, MemoryS: seconds, Reason: "so it was told"}}}
		if outcome != report.Completed {
			r.Unmet = []string{"it aborted"}
		}
		return r, leave(o.Out, r)
	}
}

func TestRun(t *testing.T) {
	row := memoryRow("row", "a row", situation{Memory: "128MiB", Rate: "1gbit", Delay: "0ms"}, Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.5},
		Aim{Variant: "L", Measure: "wire", AtMost: 1})
	row, err := row.Only([]string{"P", "L"})
	if err != nil {
		t.Fatal(err)
	}
	if none, err := row.Only([]string{"L"}); err != nil || len(none.Aims) != 1 {
		t.Errorf("aims that L alone can show: %+v, %v", none.Aims, err)
	}
	if _, err := row.Only([]string{"Y"}); err == nil {
		t.Error("a variant that is none")
	}
	results, err := Run(t.Context(), []Row{row}, Options{Out: t.TempDir(), Rounds: 3, Run: scripted()})
	if err != nil {
		t.Fatal(err)
	}
	l := results[0].Variants[1]
	if diff := cmp.Diff(Stats{N: 2, Median: 0.45, Low: 0.4, High: 0.5}, l.Ratios["memory"]); diff != "" {
		t.Errorf("ratios: %s", diff)
	}
	if diff := cmp.Diff([]string{"round 3: it aborted"}, l.Unmet); diff != "" {
		t.Error(diff)
	}
	if a := results[0].Aims; !a[0].Reached || a[1].Reached || a[1].Seen != nil {
		t.Errorf("aims: %+v", a)
	}
	var text strings.Builder
	Print(&text, results)
	for _, want := range []string{"4.50 (4.00 … 5.00) [2 of 3] × 0.45 (0.40 … 0.50)", "! L, round 3: it aborted", "✓ memory of L against P ≤ 0.5: 0.45", "✗ wire of L ≤ 1: not measured", "least, MB  wire/least  CPU, s"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestRunEnds(t *testing.T) {
	broken := errors.New("no lab here")
	_, err := Run(t.Context(), Handover().Rows, Options{Out: t.TempDir(), Rounds: 1,
		Run: func(context.Context, *scenario.Scenario, lab.Options) (*report.Report, error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// TestWhatWasNotMeasured: of no runs there is no number, and JSON has none.
func TestWhatWasNotMeasured(t *testing.T) {
	row := Row{Name: "x", Measures: []Measure{networkDowntime}, Variants: []Variant{{Name: "a"}, {Name: "b"}}}
	got := Evaluate(row, map[string][]Sample{"a": {{Round: 1, Values: map[string]*float64{networkDowntime.Name: number(90)}}}})
	text, err := json.Marshal(got.Variants)
	const none = `{"n":0,"median":null,"low":null,"high":null,"why_null":"it was not run"}`
	for _, want := range []string{`"network downtime":{"n":1,"median":90,"low":90,"high":90}`,
		`{"name":"b","samples":[],"numbers":{"network downtime":` + none + `},"ratios":{"network downtime":` + none + `}`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %s (%v)", text, want, err)
		}
	}
	if !got.Measured() || Evaluate(row, nil).Measured() {
		t.Errorf("%+v", got)
	}
	var b strings.Builder
	Print(&b, []Result{Evaluate(row, map[string][]Sample{"a": {
		{Round: 1, Values: map[string]*float64{networkDowntime.Name: number(90)}}, {Round: 2, Outcome: "ok"}}})})
	if !strings.Contains(b.String(), "90.0 [1 of 2]") {
		t.Errorf("a run without a number is among those that have one:\n%s", &b)
	}
}
