package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
)

func TestWindow(t *testing.T) {
	began := record.Event{Kind: "event", Name: migration.MigrationStart, At: 100}
	other := record.Event{Kind: "event", Name: migration.SourceSuspend, At: 150}
	for _, c := range []struct {
		name     string
		events   []record.Event
		report   *record.Report
		from, to int64
		ok       bool
	}{
		{"to the handover's end", []record.Event{began, other}, &record.Report{Handed: 200, Ended: 300}, 100, 200, true},
		{"begun again after an agent's restart", []record.Event{began, other, {Kind: "event", Name: migration.MigrationStart, At: 170}}, &record.Report{Handed: 200, Ended: 300}, 100, 200, true},
		{"no handover: to the outcome", []record.Event{began}, &record.Report{Ended: 300}, 100, 300, true},
		{"never began", []record.Event{other}, &record.Report{Ended: 300}, 0, 300, false},
		{"no end: to the run's", []record.Event{began}, &record.Report{Outcome: migration.InDoubt}, 100, 310, true},
		{"clocks apart", []record.Event{began}, &record.Report{Handed: 90}, 100, 90, false},
		{"refused by its check", nil, &record.Report{Outcome: migration.Refused, Ended: 300}, 10, 310, true},
		{"called off in its check", nil, &record.Report{Outcome: migration.Aborted, Ended: 300}, 10, 300, true},
		{"no report: to the run's end", []record.Event{began}, nil, 100, 310, true},
		{"no report, and it never began", []record.Event{other}, nil, 0, 310, false},
	} {
		m := &move{events: c.events, report: c.report, asked: time.Unix(0, 10), over: time.Unix(0, 310)}
		if from, to, ok := m.window(); from != c.from || to != c.to || ok != c.ok {
			t.Errorf("%s: %d to %d, %v", c.name, from, to, ok)
		}
	}
}

func TestWindowsOf(t *testing.T) {
	at := func(guest string, from, to int64) *move {
		return &move{guest: guest, events: []record.Event{{Name: migration.MigrationStart, At: from}}, report: &record.Report{Handed: to}}
	}
	refused := func(guest string) *move {
		return &move{guest: guest, refusal: &migration.Problem{}, asked: time.Unix(0, 30), over: time.Unix(0, 40)}
	}
	r := &run{moves: []*move{refused("web"), at("web", 500, 600), at("db", 10, 20), at("web", 100, 200), {guest: "web"}, refused("mail")}}
	got := r.windowsOf("web")
	if len(got) != 2 || got[0] != [2]int64{100, 200} || got[1] != [2]int64{500, 600} {
		t.Errorf("%v", got)
	}
	if got := r.windowsOf("mail"); len(got) != 1 || got[0] != [2]int64{30, 40} { // a gap can be told of it too
		t.Errorf("all were refused: %v", got)
	}
}

func TestResolve(t *testing.T) {
	r := &run{w: &world{scenario: &scenario.Scenario{Sites: []scenario.Site{{Name: "paris", Hosts: 1}, {Name: "rome", Hosts: 3}}}}}
	for _, c := range []struct{ from, to, want string }{
		{"rome-1", "paris", "paris"},
		{"paris", "rome", "rome-1"},
		{"rome-1", "rome", "rome-2"},
		{"rome-2", "rome", "rome-1"},
		{"paris", "rome-3", "rome-3"},
		{"rome-3", "rome-3", "rome-3"},
		{"paris", "berlin", "berlin"}, // refused, as it was asked
	} {
		if got := r.resolve(&move{from: c.from, to: c.to}); got != c.want {
			t.Errorf("from %s to %s: %s, want %s", c.from, c.to, got, c.want)
		}
	}
}

// TestCriticalPath: what lies in the downtime, what passing the right on costs, and
// both hosts' steps in their order.
func TestCriticalPath(t *testing.T) {
	const ms = 1_000_000
	rep := &record.Report{Requested: 0, Paused: 100 * ms, Resumed: 140 * ms, Critical: []record.Step{
		{Name: "journal: flip begins", At: 80 * ms, MS: 0.25},
		{Name: "stop guest", At: 90 * ms, MS: 10},
		{Name: "journal: let go", At: 101 * ms, MS: 1},
		{Name: "release → runs", At: 103 * ms, MS: 50},
		{Name: "journal: it runs", At: 141 * ms, MS: 0.5},
		{Name: "hand over: count what is held", At: 120 * ms, MS: 0.75},
	}}
	steps, sum := criticalPath(rep)
	var names, in []string
	for _, s := range steps {
		names = append(names, s.Kind)
		if s.InDowntime {
			in = append(in, s.Name)
		}
	}
	if got := strings.Join(names, ","); got != "journal,,journal,,hand-over,journal" {
		t.Errorf("kinds %s", got)
	}
	if got := strings.Join(in, ","); got != "stop guest,journal: let go,release → runs,hand over: count what is held" {
		t.Errorf("in the downtime: %s", got)
	}
	if sum.DowntimeMS != 1.75 || sum.CriticalMS != 1.75 || sum.TotalMS != 2.5 { // when memory was there is not known
		t.Errorf("%+v", sum)
	}
	for at, want := range map[int64]float64{110 * ms: 0.875, 101*ms + ms/2: 1.375, 90 * ms: 1.875} {
		beside := *rep
		beside.Critical = append(slices.Clone(rep.Critical), record.Step{Name: "journal: start begins", At: 119 * ms, MS: 0.125}, record.Step{Name: "last byte loaded", At: at})
		if _, sum := criticalPath(&beside); sum.CriticalMS != want {
			t.Errorf("memory was there at %d ms: %+v, want %v", at/ms, sum, want)
		}
	}
	if steps, sum := criticalPath(&record.Report{}); steps != nil || sum != nil {
		t.Errorf("of nothing: %v, %v", steps, sum)
	}
}

// What became of connections: nothing moves, and nothing takes a tunnel, in a migration
// that did not take place.
func TestConnections(t *testing.T) {
	next := netip.MustParseAddr("10.2.1.10")
	r := &run{
		w: &world{scenario: &scenario.Scenario{Clients: []scenario.Client{{Name: "phone", AddAddrAccepted: 8}, {Name: "old", MPTCP: "off", AddAddrAccepted: 8}}, Traffic: []scenario.Traffic{
			{Name: "a", Client: "phone", Guest: "web", Kind: "ticks"}, {Name: "u", Guest: "web", Kind: "udp"}, {Name: "c", Guest: "web", Kind: "exec"}, {Name: "b", Guest: "db", Kind: "ticks"},
			{Name: "late", Client: "old", Guest: "web", Kind: "ticks"},
		}}},
		flows: map[string]*flowTrace{"a": {remotes: []remotes{{400, map[netip.Addr]int{next: 1}}, {600, map[netip.Addr]int{next: 2}}}}, "late": {}},
		results: map[string]traffic.Result{
			"a": {End: 900, Connections: []traffic.Connection{
				{Survived: true, Remotes: []netip.Addr{next}, Last: 900}, {Survived: true, Last: 900}, {Last: 150, Ended: 160}, {Last: 700},
			}},
			"late": {Start: 600, Connections: []traffic.Connection{{Survived: true, Remotes: []netip.Addr{next}, Last: 900}}},
			"u":    {Connections: []traffic.Connection{{}}}, "b": {Connections: []traffic.Connection{{}}}, "c": {Connections: []traffic.Connection{{}}},
		},
	}
	to := []migration.Address{{Prefix: netip.PrefixFrom(next, 24)}}
	for _, c := range []struct {
		name string
		m    *move
		want report.Connections
	}{
		{"completed", &move{report: &record.Report{Outcome: migration.Completed, Network: "mptcp", Next: to, Ended: 500}}, report.Connections{Total: 4, Moved: 2, Tunnelled: 1, Lost: 1}},
		{"tunnel", &move{report: &record.Report{Outcome: migration.Completed, Network: "tunnel", Next: to, Ended: 500}}, report.Connections{Total: 4, Tunnelled: 3, Lost: 1}},
		{"aborted", &move{report: &record.Report{Outcome: migration.Aborted, Next: to, Ended: 500}}, report.Connections{Total: 4, Lost: 1}},
		{"refused", &move{refusal: &migration.Problem{}, asked: time.Unix(0, 100)}, report.Connections{Total: 4}},
		{"after one was lost", &move{asked: time.Unix(0, 200), report: &record.Report{Outcome: migration.Completed, Network: "mptcp", Next: to, Ended: 500}}, report.Connections{Total: 3, Moved: 2, Tunnelled: 1}},
		{"in doubt, without an end", &move{over: time.Unix(0, 500), report: &record.Report{Outcome: migration.InDoubt}}, report.Connections{Total: 4, Tunnelled: 3, Lost: 1}},
		{"nothing heard to the end", &move{asked: time.Unix(0, 100), over: time.Unix(0, 500)}, report.Connections{Total: 4, Tunnelled: 3, Lost: 1}},
		{"the lab saw that it stays", &move{asked: time.Unix(0, 100), over: time.Unix(0, 500), judged: report.Aborted, judgedWhy: "nobody leads it"}, report.Connections{Total: 4, Lost: 1}},
		{"the lab saw a doubt", &move{asked: time.Unix(0, 100), over: time.Unix(0, 500), judged: report.InDoubt, judgedWhy: "nobody leads it"}, report.Connections{Total: 4, Tunnelled: 3, Lost: 1}},
		{"under way to the end, at its source", &move{over: time.Unix(0, 500), report: &record.Report{}}, report.Connections{Total: 4, Lost: 1}},
		{"the destination alone tells of the end", &move{report: &record.Report{}, there: &record.Report{Outcome: migration.Completed, Network: "mptcp", Next: to, Ended: 500}}, report.Connections{Total: 4, Moved: 2, Tunnelled: 1, Lost: 1}},
		{"nothing heard", &move{asked: time.Unix(0, 100)}, report.Connections{Total: 4, Tunnelled: 4}},
		{"ended when one began that cannot follow", &move{report: &record.Report{Outcome: migration.Completed, Network: "mptcp", Next: to, Ended: 650}}, report.Connections{Total: 5, Moved: 3, Tunnelled: 1, Lost: 1, Unable: 1}},
		{"it came when the guest was there", &move{report: &record.Report{Outcome: migration.Completed, Network: "mptcp", Next: to, Resumed: 550, Ended: 650}}, report.Connections{Total: 4, Moved: 2, Tunnelled: 1, Lost: 1}},
	} {
		c.m.guest = "web"
		if got := r.connections(c.m); *got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, *got, c.want)
		}
	}
}

// TestSpan: of two guests that moved at once the first may be the last one there.
func TestSpan(t *testing.T) {
	for want, windows := range map[[2]int64][][2]int64{{100, 900}: {{100, 900}, {200, 300}}, {100, 400}: {{100, 150}, {200, 400}}} {
		if got := spanOf(windows); got != want {
			t.Errorf("%v: %v, want %v", windows, got, want)
		}
	}
}

// TestConnectionsOfAGuestThatMovedOn: each counts, by how many were seen on the next address until it moved on, and not
// by where they are in the end.
func TestConnectionsOfAGuestThatMovedOn(t *testing.T) {
	second := int64(time.Second)
	a, b := netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.2.1.10")
	done := func(to netip.Addr, asked, handed int64) *move {
		return &move{guest: "web", asked: time.Unix(0, asked), report: &record.Report{
			Outcome: migration.Completed, Network: "mptcp", Next: []migration.Address{{Prefix: netip.PrefixFrom(to, 24)}}, Handed: handed, Ended: handed + second,
		}}
	}
	r := &run{
		w: &world{scenario: &scenario.Scenario{
			Clients: []scenario.Client{{Name: "phone", AddAddrAccepted: 8}}, Traffic: []scenario.Traffic{{Name: "a", Client: "phone", Guest: "web", Kind: "ticks"}},
		}},
		flows: map[string]*flowTrace{"a": {}},
		moves: []*move{done(b, 10*second, 20*second), done(a, 60*second, 70*second)},
	}
	for at, on := range map[int64]map[netip.Addr]int{5: {a: 20}, 15: {a: 20, b: 12}, 25: {b: 12}, 30: {b: 18}, 65: {a: 20, b: 20}, 75: {a: 20}} {
		r.flows["a"].remotes = append(r.flows["a"].remotes, remotes{at * second, on})
	}
	slices.SortFunc(r.flows["a"].remotes, func(x, y remotes) int { return int(x.at - y.at) })
	result := traffic.Result{Connections: make([]traffic.Connection, 20)}
	for i := range result.Connections {
		result.Connections[i] = traffic.Connection{Survived: true, Last: 90 * second, Remotes: []netip.Addr{a}}
	}
	r.results = map[string]traffic.Result{"a": result}
	for i, want := range []report.Connections{{Total: 20, Moved: 18, Tunnelled: 2}, {Total: 20, Moved: 20}} {
		if got := r.connections(r.moves[i]); *got != want {
			t.Errorf("migration %d: %+v, want %+v", i+1, *got, want)
		}
	}
}

// TestSparseConnections: a connection that says something every few minutes is there when a migration is asked for,
// and is lost by the one after which nothing was heard of it.
func TestSparseConnections(t *testing.T) {
	one := func(c traffic.Connection) *run {
		return &run{
			w:       &world{scenario: &scenario.Scenario{Clients: []scenario.Client{{Name: "phone", AddAddrAccepted: 8}}, Traffic: []scenario.Traffic{{Name: "a", Client: "phone", Guest: "web", Kind: "ticks"}}}},
			flows:   map[string]*flowTrace{"a": {}},
			results: map[string]traffic.Result{"a": {Connections: []traffic.Connection{c}}},
			moves: []*move{
				{guest: "web", asked: time.Unix(0, 200), report: &record.Report{Outcome: migration.Completed, Network: "mptcp", Ended: 300}},
				{guest: "web", asked: time.Unix(0, 400), report: &record.Report{Outcome: migration.Completed, Network: "mptcp", Ended: 500}},
			},
		}
	}
	for _, c := range []struct {
		name       string
		connection traffic.Connection
		want       [2]report.Connections // of the first migration, of the second
	}{
		{"lost by the first", traffic.Connection{Last: 100}, [2]report.Connections{{Total: 1, Lost: 1}, {}}},
		{"by the second", traffic.Connection{Last: 100, Heard: 350}, [2]report.Connections{{Total: 1, Tunnelled: 1}, {Total: 1, Lost: 1}}},
		{"by neither", traffic.Connection{Last: 100, Heard: 600}, [2]report.Connections{{Total: 1, Tunnelled: 1}, {Total: 1, Tunnelled: 1}}},
		{"it had ended before", traffic.Connection{Last: 100, Heard: 120, Ended: 150}, [2]report.Connections{}},
		{"it ended between", traffic.Connection{Last: 100, Heard: 340, Ended: 350}, [2]report.Connections{{Total: 1, Tunnelled: 1}, {}}},
		{"it survived", traffic.Connection{Survived: true, Last: 100, Heard: 600}, [2]report.Connections{{Total: 1, Tunnelled: 1}, {Total: 1, Tunnelled: 1}}},
	} {
		r := one(c.connection)
		for i, m := range r.moves {
			if got := r.connections(m); *got != c.want[i] {
				t.Errorf("%s: migration %d: %+v, want %+v", c.name, i+1, *got, c.want[i])
			}
		}
	}
}

// Nobody counts the records of other programs: they are null with a reason, not zero.
func TestOtherProgramsHaveNoRecords(t *testing.T) {
	zero, some := int64(0), int64(5)
	half := 0.5
	for kind, want := range map[string][3]bool{"exec": {false, false, false}, "iperf3": {false, true, true}, "ticks": {true, true, true}} {
		got := kindNulls(report.Traffic{
			Kind: kind, RecordsLost: &zero, RecordsRepeated: &zero, Corrupt: &zero, Bytes: &some, Retransmits: &zero,
			Mbps: report.Windows{Before: &half, During: &half, After: &half}, MPTCP: new(false), WhyNull: map[string]string{},
		})
		there := [3]bool{got.RecordsLost != nil, got.Bytes != nil, got.Mbps.During != nil}
		if there != want || (got.Corrupt == nil) != (got.WhyNull["corrupt"] != "") || (got.Retransmits == nil) != (got.WhyNull["retransmits"] != "") {
			t.Errorf("%s: records, bytes, rate are there: %v, want %v; %v", kind, there, want, got.WhyNull)
		}
		if (got.MPTCP == nil) != (kind == "exec") || (got.MPTCP == nil) != (got.WhyNull["mptcp"] != "") {
			t.Errorf("%s: MPTCP is told: %v; %v", kind, got.MPTCP != nil, got.WhyNull)
		}
	}
}

// A flow that ended soon after the handover has no numbers of the time after it: what a
// few milliseconds would tell is not true of it.
func TestAfterwards(t *testing.T) {
	at := func(d time.Duration) int64 { return int64(d) }
	for _, c := range []struct {
		end, from, to time.Duration
		ok            bool
	}{
		{time.Minute, 12 * time.Second, 17 * time.Second, true},
		{14 * time.Second, 12 * time.Second, 14 * time.Second, true},
		{12100 * time.Millisecond, 12 * time.Second, 12100 * time.Millisecond, false},
		{11 * time.Second, 12 * time.Second, 11 * time.Second, false},
	} {
		if got, ok := afterwards(at(10*time.Second), at(c.end)); ok != c.ok || got != [2]int64{at(c.from), at(c.to)} {
			t.Errorf("to %v: %v, %v", c.end, got, ok)
		}
	}
}

// TestAgentAwaited: of an agent that is killed again before it is back one start is planned, and one that
// is killed while it comes up is started once more.
func TestAgentAwaited(t *testing.T) {
	h := &hostAgent{done: make(chan struct{})}
	if h.goneForGood() {
		t.Error("it runs, and is gone for good")
	}
	close(h.done)
	if !h.goneForGood() {
		t.Error("nobody starts it")
	}
	if !h.awaits() || h.awaits() || h.goneForGood() {
		t.Error("one start is to be planned, and no second one")
	}
	h.done, h.awaiting = make(chan struct{}), false // as start does
	close(h.done)
	if !h.awaits() {
		t.Error("it was killed as it came up, and nobody starts it")
	}
}

// TestOverWithoutAnEnd: a migration that nobody told the end of was over when the run began to end.
func TestOverWithoutAnEnd(t *testing.T) {
	r := &run{ending: make(chan struct{}), ended: time.Unix(0, 500)}
	doubt := &move{report: &record.Report{Outcome: migration.InDoubt}}
	if got := r.overAt(doubt); got.Equal(r.ended) {
		t.Error("the run has not ended")
	}
	close(r.ending)
	for _, m := range []*move{doubt, {}} {
		if got := r.overAt(m); !got.Equal(r.ended) {
			t.Errorf("%+v: over at %v", m.report, got)
		}
	}
	for _, m := range []*move{{report: &record.Report{Ended: 700}}, {refusal: &migration.Problem{}}} {
		if got := r.overAt(m); got.Equal(r.ended) {
			t.Errorf("%+v: over when the run ended", m.report)
		}
	}
}
