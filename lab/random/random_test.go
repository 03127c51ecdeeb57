package random

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/migration"
)

// Every seed gives a file that can be read, the same each time.
func TestScenariosAreRead(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(2000) {
		text := Scenario(seed)
		if !bytes.Equal(text, Scenario(seed)) {
			t.Fatalf("seed %d gave two files", seed)
		}
		s, err := scenario.Parse("random.yaml", text)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		for _, step := range s.Steps {
			if step.Cut != nil && s.End.AfterLastMigration < lingers*time.Second+2*step.Cut.For {
				t.Errorf("seed %d: a cut of %v, and %v after the last migration all must be heard of again", seed, step.Cut.For, s.End.AfterLastMigration)
			}
			seen[step.Kind()]++
			if step.Migrate != nil {
				seen[step.Migrate.Mode]++
				seen[step.Migrate.Transfer]++
				seen["network "+step.Migrate.Network]++
			}
		}
		datagrams := map[string]int64{}
		for _, f := range s.Traffic {
			if f.Kind == "udp" {
				datagrams[f.Guest] += f.Rate
			}
			seen[f.Kind]++
			seen[f.Family]++
		}
		for guest, rate := range datagrams {
			if most := int64(1000 * (mostUDP + 3*leastUDP)); rate > most {
				t.Errorf("seed %d: datagrams of %d bit/s to %s, at most %d", seed, rate, guest, most)
			}
		}
		for _, e := range s.Expect {
			seen[e.Kind]++
		}
	}
	for _, what := range strings.Fields("migrate abort move cut degrade kill exec auto precopy hybrid postcopy stopcopy lanes mptcp " +
		"qemu-tcp qemu-mptcp qemu-multifd qemu-xbzrle ticks download upload requests udp iperf3 evacuate v4 v6 migrations dropped_packets connections leftovers") {
		if seen[what] < 50 {
			t.Errorf("%s came %d times in 2000 scenarios", what, seen[what])
		}
	}
}

// A busy guest may be given up in mode auto, by an evacuation as by a step of its own.
func TestEvacuationOfABusyGuest(t *testing.T) {
	tried := 0
	for seed := range uint64(2000) {
		m := made(seed)
		text := m.text.String()
		for _, g := range m.vms {
			if !g.busy || !strings.Contains(text, "evacuate: {host: "+g.host+"}") {
				continue
			}
			tried++
			if strings.Contains(text, "migrations: completed") {
				t.Errorf("seed %d: %s is busy, and yet has to leave %s\n%s", seed, g.name, g.host, text)
			}
		}
	}
	if tried < 20 {
		t.Errorf("%d evacuations of busy guests in 2000 scenarios", tried)
	}
}

// No file expects that a migration completes whose budget the way and its devices' state alone may use up.
func TestBudgetThatMayNotBeMet(t *testing.T) {
	near := site{hosts: []string{"a-1", "a-2"}, slowest: 300, far: 50}
	m := &maker{places: []site{near, {hosts: []string{"b"}, slowest: 1000, far: 75}, {hosts: []string{"c"}, slowest: 20, far: 75}}}
	for _, c := range []struct {
		from, to, transfer string
		limit              int
		budget             time.Duration
		fits               bool
	}{
		{"a-1", "b", "", 1000, 200 * time.Millisecond, true},
		{"a-1", "b", "qemu-tcp", 1000, 200 * time.Millisecond, true},
		{"c", "b", "lanes", 1000, 200 * time.Millisecond, false}, // 173 ms, and pages
		{"c", "b", "", 1000, 300 * time.Millisecond, true},
		{"a-1", "a-2", "mptcp", 1000, 150 * time.Millisecond, false}, // by the uplink of each
		{"a-1", "b", "qemu-mptcp", 80, time.Second, false},           // it may write as much
		{"c", "b", "qemu-mptcp", 1000, time.Minute, true},            // nobody waits for rounds
	} {
		if got := m.fits(c.from, c.to, c.transfer, c.limit, c.budget); got != c.fits {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, seed := range []uint64{883, 2033, 2700} { // of 300 ms the least takes 299; of 200 ms 199, and 214
		if strings.Contains(string(Scenario(seed)), "migrations: completed") {
			t.Errorf("seed %d expects what cannot be expected", seed)
		}
	}
}

// A guest that a migration left where it was may be asked to go there: that is no fault of ours.
func TestJudgeOfWhoStayed(t *testing.T) {
	refused := good()
	refused.Outcome, refused.Reason, refused.Code = report.Refused, "it is there already", migration.CodeUsage
	aborted := good()
	aborted.Outcome, aborted.Reason, aborted.Code = report.Aborted, "asked", migration.CodeAsked
	if bad := Judge(&report.Report{Migrations: []report.Migration{refused}}, silentMost); len(bad) != 1 {
		t.Errorf("alone: %v", bad)
	}
	if bad := Judge(&report.Report{Migrations: []report.Migration{aborted, refused}}, silentMost); len(bad) != 0 {
		t.Errorf("after an abort: %v", bad)
	}
}

// What waits for a phase of a migration that was undone does not begin: that is no fault of ours either. What waits for
// another's, or for its turn, does.
func TestUnmet(t *testing.T) {
	lines := []string{"never reached: web settle: exec in web", "never reached: db copy + 3ms: exec in web", "never reached: 3s: migrate web to south", "leftovers: 1"}
	if got := unmet(&report.Report{Migrations: []report.Migration{good()}, Unmet: lines}); len(got) != 4 {
		t.Errorf("all completed: %v", got)
	}
	aborted := good()
	aborted.Outcome = report.Aborted
	if got := unmet(&report.Report{Migrations: []report.Migration{good(), aborted}, Unmet: lines}); !slices.Equal(got, lines[1:]) {
		t.Errorf("one was undone: %v", got)
	}
}

func f(x float64) *float64 { return &x }
func n(x int64) *int64     { return &x }

func good() report.Migration {
	return report.Migration{
		Guest: "web", From: "north", To: "south", Outcome: report.Completed, TotalS: f(5), MigrationS: f(3), MemoryS: f(3), WireBytes: n(100),
		WireBytesByPath: map[string]int64{"a-a": 60, "a-b": 40}, Phases: []report.Phase{{Name: "check", EndS: 1}, {Name: "copy", StartS: 1, EndS: 5}},
		Connections: &report.Connections{Total: 3, Moved: 2, Tunnelled: 1}, NextSilentMS: f(20),
		Survival: &report.Survival{Total: 2, Moved: 1, Tunnelled: 1, Connections: make([]report.Survivor, 2)},
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		change func(*report.Migration)
		says   string
	}{
		{func(*report.Migration) {}, ""},
		{func(m *report.Migration) { m.Outcome = report.InDoubt }, "in_doubt"},
		{func(m *report.Migration) { m.Outcome = "" }, "without outcome"},
		{func(m *report.Migration) { m.Outcome = report.Aborted }, "without a reason"},
		{func(m *report.Migration) {
			m.Outcome, m.Reason, m.Code = report.Refused, "x", migration.CodeInternal
		}, "internal"},
		{func(m *report.Migration) { m.Outcome, m.Reason, m.Code = report.Refused, "x", migration.CodePath }, ""},
		{func(m *report.Migration) { m.MigrationS = f(6) }, "migration_s is 6.000"},
		{func(m *report.Migration) { m.MemoryS = nil }, "memory_s is not known"},
		{func(m *report.Migration) { m.MemoryS, m.PostCopy = f(2), &report.PostCopy{Pages: 1} }, "memory came after"},
		{func(m *report.Migration) { m.MemoryS, m.PostCopy = f(2), &report.PostCopy{} }, ""},
		{func(m *report.Migration) {
			m.MemoryS, m.PostCopy, m.Steps = f(2.8), &report.PostCopy{Pages: 1}, []report.Step{{Name: "start guest", AtS: 2.7, MS: 300}}
		}, ""},
		{func(m *report.Migration) { m.WireBytes = n(99) }, "paths carried 100"},
		{func(m *report.Migration) { m.WireBytes = nil }, "no wire_bytes"},
		{func(m *report.Migration) {
			m.WireBytes, m.WhyNull = nil, map[string]string{"wire_bytes": "the source's agent was started again"}
		}, ""},
		{func(m *report.Migration) {
			m.WireBytes, m.WhyNull = nil, map[string]string{"wire_bytes": "of some paths it was not counted, see wire_bytes_by_path", "wire_bytes_by_path.a-a": "no meter"}
		}, "no wire_bytes_by_path.a-a: no meter"},
		{func(m *report.Migration) { m.Connections.Lost = 1 }, "3 connections"},
		{func(m *report.Migration) { m.Phases[1].StartS = 0.5 }, "phase copy"},
		{func(m *report.Migration) { m.TotalS = f(4) }, "last phase ends"},
		{func(m *report.Migration) { m.NextSilentMS = f(silentMost + 1) }, "silent for 2001 ms"},
		{func(m *report.Migration) { m.NextSilentMS = nil }, "no next_silent_ms"},
		{func(m *report.Migration) {
			m.NextSilentMS, m.WhyNull = nil, map[string]string{"next_silent_ms": "the guest kept its address"}
		}, ""},
		{func(m *report.Migration) { m.Survival.Lost = 1 }, "2 connections, 2 in all: 1 moved, 1 tunnelled, 0 ended, 1 lost"},
		{func(m *report.Migration) { m.Survival.Otherwise = []string{"ticks-1 lives"} }, "ticks-1 lives"},
	} {
		m := good()
		c.change(&m)
		got := fmt.Sprint(Judge(&report.Report{Migrations: []report.Migration{m}}, silentMost))
		if c.says == "" && got != "[]" || !strings.Contains(got, c.says) {
			t.Errorf("want %q, got %s", c.says, got)
		}
	}
}
