package matrix

import (
	"strings"
	"testing"

	"godwit/migration"
)

func TestOrderIsBroadAndWhole(t *testing.T) {
	cells, err := Order(7, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Cell]bool{}
	faults, phases := map[string]bool{}, map[migration.Phase]bool{}
	for i, c := range cells {
		if seen[c] {
			t.Fatalf("%s is there twice", c)
		}
		seen[c], faults[c.Fault], phases[c.Phase] = true, true, true
		if i == len(migration.Phases)-1 && len(phases) != len(migration.Phases) {
			t.Errorf("the first %d cells have %d phases", i+1, len(phases))
		}
		if i == len(Faults)-1 && len(faults) != len(Faults) {
			t.Errorf("the first %d cells have %d faults", i+1, len(faults))
		}
	}
	if len(cells) != len(Faults)*len(migration.Phases) {
		t.Errorf("%d cells", len(cells))
	}
	again, _ := Order(7, nil, nil)
	other, _ := Order(8, nil, nil)
	if again[0] != cells[0] || again[50] != cells[50] {
		t.Error("the same seed gave another order")
	}
	if other[0] == cells[0] && other[1] == cells[1] && other[2] == cells[2] {
		t.Error("another seed gave the same order")
	}
}

func TestOrderOfSome(t *testing.T) {
	cells, err := Order(1, []string{Cut3s, Loss30}, []string{"copy", "switch"}) // as many of one as of the other
	if err != nil || len(cells) != 4 {
		t.Fatal(cells, err)
	}
	seen := map[Cell]bool{}
	for _, c := range cells {
		seen[c] = true
	}
	if len(seen) != 4 {
		t.Errorf("%v", cells)
	}
	if _, err := Order(1, []string{"cut"}, nil); err == nil || !strings.Contains(err.Error(), Cut20s) {
		t.Errorf("%v: want what there is", err)
	}
	if _, err := Order(1, nil, []string{"copying"}); err == nil {
		t.Error("no error")
	}
}

func TestJudge(t *testing.T) {
	moved := Seen{From: "a", To: "b", Outcome: migration.Completed, Runs: []string{"b"}, Connections: 3, Looks: 10}
	back := Seen{From: "a", To: "b", Outcome: migration.Aborted, Problem: "cut", Runs: []string{"a"}, Connections: 3, Looks: 10}
	with := func(s Seen, change func(*Seen)) Seen { change(&s); return s }
	for name, c := range map[string]struct {
		fault string
		phase migration.Phase
		seen  Seen
		want  string // a complaint has it; "": none
	}{
		"moved":                {Cut3s, migration.Copy, moved, ""},
		"back":                 {Cut20s, migration.Copy, back, ""},
		"two at the end":       {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Runs = []string{"a", "b"} }), "doubled"},
		"two for a moment":     {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Doubled = 1 }), "doubled"},
		"nowhere":              {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Runs = nil }), "lost"},
		"ended by the fault":   {KillSourceQEMU, migration.Copy, with(back, func(s *Seen) { s.Runs, s.Ended, s.Outcome, s.Lost = nil, true, migration.Failed, []string{"x"} }), ""},
		"it powered off":       {GuestPowerOff, migration.Copy, with(back, func(s *Seen) { s.Runs, s.Ended, s.Problem = nil, true, "guest a powered off during the migration" }), ""},
		"not said in the copy": {GuestReboot, migration.Copy, with(back, func(s *Seen) { s.Runs, s.Ended, s.Problem = nil, true, "guest a ended" }), "not said that the guest rebooted"},
		"panicked after it": {GuestPanic, migration.Handover, with(moved, func(s *Seen) {
			s.Runs, s.Ended, s.Before, s.Notes = nil, true, true, []string{"x", "it ended (panicked)"}
		}), ""},
		"not said after it": {GuestPanic, migration.Handover, with(moved, func(s *Seen) { s.Runs, s.Ended, s.Before, s.Notes = nil, true, true, []string{"it ended on b"} }), "not said that the guest panicked"},
		"how is not said": {GuestReboot, migration.Settle, with(moved, func(s *Seen) {
			s.Runs, s.Ended, s.Notes = nil, true, []string{"guest a ended on b before the migration was over"}
		}), "not said that the guest rebooted"},
		"ended as it settled":     {GuestPanic, migration.Settle, with(moved, func(s *Seen) { s.Runs, s.Ended = nil, true }), ""},
		"told to end, and lives":  {GuestReboot, migration.Switch, with(moved, func(s *Seen) { s.Ended = true }), ""},
		"failed though it lived":  {KillSourceQEMU, migration.Settle, with(moved, func(s *Seen) { s.Outcome = migration.Failed }), "failed"},
		"connection lost":         {Cut20s, migration.Handover, with(moved, func(s *Seen) { s.Lost = []string{"ticks: reset"} }), "connections lost: ticks"},
		"said one, did the other": {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Outcome = migration.Aborted }), "and the guest runs on b"},
		"moved, runs at source":   {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Runs = []string{"a"} }), "and the guest runs on a"},
		"no reason":               {Cut20s, migration.Copy, with(back, func(s *Seen) { s.Problem = "" }), "not why in one line"},
		"two lines":               {Cut20s, migration.Copy, with(back, func(s *Seen) { s.Problem = "cut\nhere" }), "not why in one line"},
		"never ended":             {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Outcome = migration.InDoubt }), "no outcome"},
		"forgotten at once":       {KillSourceAgent, migration.Check, with(back, func(s *Seen) { s.Outcome = "" }), ""},
		"forgotten later":         {KillSourceAgent, migration.Copy, with(back, func(s *Seen) { s.Outcome = "" }), "knows"},
		"doubt while silent":      {Cut20s, migration.Switch, with(moved, func(s *Seen) { s.Doubt, s.ThroughS = []Span{{5, 21.5}}, 20 }), ""},
		"doubt goes on":           {Cut20s, migration.Switch, with(moved, func(s *Seen) { s.Doubt, s.ThroughS = []Span{{5, 22.5}}, 20 }), "in doubt"},
		"doubt without silence":   {CutOneUplink, migration.Switch, with(moved, func(s *Seen) { s.Doubt, s.ThroughS = []Span{{5, 9}}, 10 }), "in doubt"},
		"left over":               {Cut3s, migration.Copy, with(back, func(s *Seen) { s.Left = []string{"tunnel gwt-1"} }), "left over: tunnel"},
		"damaged":                 {Cut3s, migration.Switch, with(moved, func(s *Seen) { s.Damaged = "1 page" }), "damaged: 1 page"},
		"never looked at":         {Cut3s, migration.Copy, with(back, func(s *Seen) { s.Looks = 0 }), "not measured: whether two"},
		"not measured":            {Cut3s, migration.Copy, Seen{Trouble: "no boot"}, "not measured"},
	} {
		bad := strings.Join(Judge(Cell{c.fault, c.phase}, c.seen), "\n")
		if c.want == "" && bad != "" || !strings.Contains(bad, c.want) {
			t.Errorf("%s: %q, want %q", name, bad, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	Table(&out, []Result{
		{Cell: Cell{Cut3s, migration.Copy}, Seen: Seen{Hit: migration.Copy, Outcome: migration.Completed, Runs: []string{"b"}, SettledS: 7.25, Connections: 3}},
		{Cell: Cell{Cut3s, migration.Switch}, Seen: Seen{Hit: migration.Handover, Outcome: migration.Aborted, Runs: []string{"a"}, SettledS: 1, Connections: 3, Left: []string{"tap gwt1a"}}, Bad: []string{"left over: tap gwt1a"}},
	})
	for _, want := range []string{
		"| cut-3s |  |  |  | moved 7.2 s | **BAD** back 1.0 s * |  |  |\n",
		"2 cells, 1 bad (0 not measured): 0 guests lost, 0 doubled, 0 of 6 connections lost, 1 leftovers.",
		"- cut-3s in switch: left over: tap gwt1a\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestTableOfSeveralTries: none of a cell's tries hides a worse one, in whatever order they came.
func TestTableOfSeveralTries(t *testing.T) {
	cell := Cell{Cut3s, migration.Copy}
	try := func(took float64, change func(*Result)) Result {
		r := Result{Cell: cell, Seen: Seen{Hit: migration.Copy, Outcome: migration.Completed, Runs: []string{"b"}, SettledS: took}}
		change(&r)
		return r
	}
	good := func(*Result) {}
	bad := func(r *Result) { r.Bad = []string{"left over: tap gwt1a"} }
	unknown := func(r *Result) { r.Trouble, r.Bad = "no boot", []string{"not measured: no boot"} }
	for _, c := range []struct {
		tries []Result
		want  string
	}{
		{[]Result{try(1, bad), try(7, unknown), try(9, good)}, "**BAD** moved 1.0 s (3)"},
		{[]Result{try(9, good), try(1, unknown)}, "**BAD** ? (2)"},
		{[]Result{try(9, good), try(1, good)}, "moved 9.0 s (2)"},
		{[]Result{try(9, good)}, "moved 9.0 s"},
	} {
		if got := wordOf(c.tries, cell); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
