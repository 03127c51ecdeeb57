package lab

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/migration"
)

// TestPathsOfMovesAtTheSameTime: a path's readings are in the order of time and add up what all moves sent, whatever is
// shared out anew between two that run at once, each with what it had sent at that time and not at its last reading; a
// later move goes on from what those before had sent in the end.
func TestPathsOfMovesAtTheSameTime(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	sends := func(over int, final int64, readings ...[2]int) *move {
		m := &move{over: at(over), report: &record.Report{WireBytes: map[string]int64{"p-q": final, "p-p": 1}}}
		for _, r := range readings {
			m.wire = append(m.wire, wireSample{at(r[0]), map[string]int64{"p-q": int64(r[1]), "p-p": 1}})
		}
		return m
	}
	moves := []*move{
		sends(9, 70, [2]int{1, 10}, [2]int{3, 40}, [2]int{5, 30}, [2]int{7, 50}),
		sends(8, 45, [2]int{2, 5}, [2]int{4, 10}, [2]int{6, 40}),
		sends(20, 100, [2]int{11, 0}, [2]int{12, 60}),
	}
	for range 5 {
		r := &run{zero: zero, moves: moves, w: &world{scenario: &scenario.Scenario{}}}
		want := []report.PathSeries{
			{Path: "p-p", T: report.Column{1, 2, 3, 4, 5, 6, 7, 11, 12}, Bytes: report.Column{1, 2, 2, 2, 2, 2, 2, 3, 3}},
			{Path: "p-q", T: report.Column{1, 2, 3, 4, 5, 6, 7, 11, 12}, Bytes: report.Column{10, 30, 48, 48, 55, 80, 93, 115, 175}},
		}
		if diff := cmp.Diff(want, r.series().Paths); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		moves = slices.Clone(moves) // whichever was asked for first
		rand.Shuffle(2, func(i, j int) { moves[i], moves[j] = moves[j], moves[i] })
	}
}

// TestPathsBesideALostSource: of a migration whose source's agent is gone nobody knows what it sent in the end; what it was
// last told to have sent stays, and what another sends beside it is seen.
func TestPathsBesideALostSource(t *testing.T) {
	zero := time.Unix(1000, 0)
	reading := func(s, bytes int) wireSample {
		return wireSample{zero.Add(time.Duration(s) * time.Second), map[string]int64{"p-p": int64(bytes)}}
	}
	over := zero.Add(8 * time.Second)
	moves := []*move{
		{over: over, wire: []wireSample{reading(1, 100), reading(2, 200)}, report: &record.Report{}},
		{over: over, wire: []wireSample{reading(3, 50), reading(7, 150)}, report: &record.Report{WireBytes: map[string]int64{"p-p": 150}}},
	}
	r := &run{zero: zero, moves: moves, w: &world{scenario: &scenario.Scenario{}}}
	want := []report.PathSeries{{Path: "p-p", T: report.Column{1, 2, 3, 7}, Bytes: report.Column{100, 200, 250, 350}}}
	if diff := cmp.Diff(want, r.series().Paths); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestPathsOfAStoppedGuest: what a migration sent while its guest stood still, of which nobody tells meanwhile, is
// there when the last page is.
func TestPathsOfAStoppedGuest(t *testing.T) {
	zero := time.Unix(1000, 0)
	at := func(s int) time.Time { return zero.Add(time.Duration(s) * time.Second) }
	m := &move{
		over: at(9), started: map[migration.Phase]time.Time{migration.Copy: at(2)},
		report: &record.Report{WireBytes: map[string]int64{"p-p": 70}, MemoryDone: at(6).UnixNano()},
	}
	sends := func(reading, done, final int) *move {
		return &move{
			over: at(done + 5), wire: []wireSample{{at(reading), map[string]int64{"p-p": 4}}},
			report: &record.Report{WireBytes: map[string]int64{"p-p": int64(final)}, MemoryDone: at(done).UnixNano() - 1e8},
		}
	}
	undone := sends(35, 36, 10)
	undone.report.MemoryDone = 0
	r := &run{zero: zero, moves: []*move{m, sends(11, 13, 10), sends(25, 26, 10), undone}, w: &world{scenario: &scenario.Scenario{}}}
	want := []report.PathSeries{{Path: "p-p", T: report.Column{2, 6, 11, 12.9, 25, 35}, Bytes: report.Column{0, 70, 74, 80, 84, 94}}}
	if diff := cmp.Diff(want, r.series().Paths); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestCutAtTheEnd: what was still cut when the run ended was cut until then, and not for as long as its step said.
func TestCutAtTheEnd(t *testing.T) {
	zero := time.Unix(1000, 0)
	r := &run{zero: zero, ended: zero.Add(9 * time.Second), w: &world{scenario: &scenario.Scenario{}}}
	for _, s := range []report.StepDone{{AtS: 4, EndS: new(5.0)}, {AtS: 4, EndS: new(44.0)}, {AtS: 9.1, EndS: new(49.1)}} {
		r.steps = append(r.steps, stepDone{&s, nil})
	}
	want := []report.StepDone{{AtS: 4, EndS: new(5.0)}, {AtS: 4, EndS: new(9.0)}, {AtS: 9.1, EndS: new(9.1)}}
	if diff := cmp.Diff(want, r.series().Steps); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
