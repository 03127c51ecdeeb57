package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keep writes a page to GODWIT_KEEP=DIR, to be looked at.
func keep(t *testing.T, name string, page []byte) {
	t.Helper()
	dir := os.Getenv("GODWIT_KEEP")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".html"), page, 0o644); err != nil {
		t.Fatal(err)
	}
}

func number64(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Fifty moves with twenty flows still make a page, of bearable size.
func TestHTMLOfManyMoves(t *testing.T) {
	r := sample()
	first := r.Migrations[0]
	for i := 2; i < 50; i++ {
		m := first
		m.RequestedS = float64(i) * 12
		m.SwitchedS = new(m.RequestedS + 6.5)
		if i%2 == 0 {
			m.From, m.To = m.To, m.From
		}
		r.Migrations = append(r.Migrations, m)
		for n, e := range r.Series.Events[:5] {
			r.Series.Events = append(r.Series.Events, Event{AtS: m.RequestedS + float64(n), Name: e.Name, Guest: "web"})
		}
		r.Series.Subflows = append(r.Series.Subflows, Subflow{Flow: "ticks", Local: "fd18:2::10", Remote: "fd00:1:1::10", FromS: m.RequestedS, ToS: new(m.RequestedS + 12)})
	}
	for i := range 20 {
		f := r.Series.Flow(fmt.Sprintf("flow%d", i), "ticks")
		for k := range 6000 {
			f.Add(float64(k)/10, float64(k%7), 20, float64(10+k%5))
		}
	}
	r.DurationS = 600
	var b bytes.Buffer
	if err := HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 8<<20 {
		t.Errorf("%d bytes", b.Len())
	}
	keep(t, "many", b.Bytes())
}

func TestHTMLIsSelfContained(t *testing.T) {
	for _, r := range []*Report{sample(), sampleBad(), sampleLanes(), {Scenario: "empty"}, {Scenario: "odd", Series: &Series{}}} {
		r.Traffic = slices.Clone(r.Traffic)
		if len(r.Traffic) > 0 {
			r.Traffic[0].Name = `<script src="https://example.org/x.js">`
		}
		if r.Series != nil && len(r.Series.Flows) > 0 {
			r.Series.Flows[0].Name = `</script><img src=x>`
			r.Series.Events[0].Name = `<b>&"`
		}
		var b bytes.Buffer
		if err := HTML(&b, r); err != nil {
			t.Fatal(err)
		}
		keep(t, "escaped-"+r.Scenario, b.Bytes())
		page := b.String()
		for _, ban := range []string{`<link`, `<img`, `<iframe`, `@import`, `url\(`, `<script [^>]*src`, `(?:href|src)=["']?(?:https?:)?//`, `fetch\(`, `\bimport\b`, `<b>`, `ZgotmplZ`, `NaN`, `Inf\b`} {
			if m := regexp.MustCompile(ban).FindString(page); m != "" {
				t.Errorf("%s: page has %q", r.Scenario, m)
			}
		}
		if n := strings.Count(page, "<script"); n != 2 {
			t.Errorf("%s: %d scripts, want 2", r.Scenario, n)
		}
		if !strings.Contains(page, "</html>") || !strings.Contains(page, "prefers-color-scheme: dark") {
			t.Errorf("%s: page is not whole", r.Scenario)
		}
	}
}

// TestWhen: a person reads when the run began to the second, and nothing of what nobody can read.
func TestWhen(t *testing.T) {
	for started, want := range map[string]string{"2026-05-04T10:20:30.658715129Z": "2026-05-04 10:20:30 UTC, 3 s", "": "3 s", "?": "3 s"} {
		if got := when(&Report{Started: started, DurationS: 3}); got != want {
			t.Errorf("%q: %q, want %q", started, got, want)
		}
	}
}

// The picture has what a person looks for.
func TestPictureShows(t *testing.T) {
	var b bytes.Buffer
	if err := HTML(&b, sampleBad()); err != nil {
		t.Fatal(err)
	}
	keep(t, "bad", b.Bytes())
	page := b.String()
	for _, want := range []string{"cut-&lt;at&gt;&amp;-copy", "copy 5.78 s", ">switch<", ">handover<", "runs at sanjose", "source suspend",
		"cut sanjose/private for 3s", "198.18.1.10 → 10.2.1.10", "private-public", ">no reply, ms<", ">from web<", ">aborted<", "4 unmet",
		"records_lost of traffic download is 3, expected 0", "vm_downtime_ms of migration 2 (web sanjose → dublin): the guest was never paused", "1 of 2"} {
		if !strings.Contains(strings.ToLower(page), strings.ToLower(want)) {
			t.Errorf("page lacks %q", want)
		}
	}
}

// TestLostInDoubt: what a migration that did not complete has lost is among the lost.
func TestLostInDoubt(t *testing.T) {
	r := &Report{Migrations: []Migration{
		{Outcome: InDoubt, Connections: &Connections{Total: 1, Lost: 1}},
		{Outcome: Completed, Connections: &Connections{Total: 2, Moved: 1, Tunnelled: 1}},
	}}
	c := connectionsCard(r)
	if c.Value != "1 of 2" || c.Note != "1 on the old address, 1 lost" || c.Class != "bad" {
		t.Errorf("%+v", c)
	}
}

// TestWayOfTheLost: of a guest that runs nowhere any more, or nobody knows where, it is not said that it stays where it was.
func TestWayOfTheLost(t *testing.T) {
	there := Migration{Guest: "web", From: "a", To: "b", Outcome: Completed}
	on := func(outcome Outcome) Migration { return Migration{Guest: "web", From: "b", To: "c", Outcome: outcome} }
	for want, moves := range map[string][]Migration{
		"web stays at b":            {on(Aborted)},
		"web: b, lost":              {on(Failed)},
		"web: b, in doubt":          {on(InDoubt)},
		"web: a → b, lost":          {there, on(Failed)},
		"web: b → c":                {on(InDoubt), on(Completed)},
		"web: b, without outcome":   {on("")}, // let go, and the run ended before it ran anywhere
		"web: a → b":                {there, on(Refused)},
		"web: a → b, in doubt":      {there, on(InDoubt), on(Refused)},
		"web: b, lost; db: d, lost": {on(Failed), {Guest: "db", From: "d", To: "c", Outcome: Failed}},
	} {
		if got := way(&Report{Migrations: moves}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestOutcomesCard: of migrations that did not complete each outcome is told, and not the last one's alone.
func TestOutcomesCard(t *testing.T) {
	for want, outcomes := range map[string][]Outcome{
		"completed": {Completed, Completed}, "1 refused": {Refused, Completed}, "2 refused, 1 failed": {Refused, Failed, Refused}, "1 aborted, 1 without outcome": {"", Aborted},
	} {
		r := &Report{}
		for _, outcome := range outcomes {
			r.Migrations = append(r.Migrations, Migration{Outcome: outcome})
		}
		if c := outcomeCard(r); c.Note != want || (c.Class == "good") != (want == "completed") {
			t.Errorf("%+v, want %q", c, want)
		}
	}
}

// TestLostRunsNowhere: of a guest that was lost, or is in doubt, the picture does not say that it runs on where it was.
func TestLostRunsNowhere(t *testing.T) {
	for outcome, want := range map[Outcome]string{Aborted: "0-60", Refused: "0-60", Failed: "0-20", InDoubt: "0-20", "": "0-20"} {
		m := Migration{Guest: "web", From: "a", To: "b", Outcome: outcome, RequestedS: 10, TotalS: new(20.0), Phases: []Phase{{"copy", 5, 10}, {"switch", 10, 20}}}
		again := Migration{Guest: "web", From: "a", To: "b", Outcome: Refused, RequestedS: 30}
		var got []string
		for _, s := range (&Report{Migrations: []Migration{m, again}}).stays("web", span{0, 60}) {
			got = append(got, fmt.Sprintf("%v-%v", s.from, s.to))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: at its site %v, want %s", outcome, got, want)
		}
	}
	back := Migration{Guest: "web", From: "a", To: "b", Outcome: Completed, RequestedS: 30, SwitchedS: new(35.0)} // it was booted again
	lost := Migration{Guest: "web", From: "a", To: "b", Outcome: Failed, RequestedS: 10, TotalS: new(10.0), Phases: []Phase{{"copy", 5, 10}}}
	if got := (&Report{Migrations: []Migration{lost, back}}).stays("web", span{0, 60}); fmt.Sprint(got) != "[{a {0 20}} {a {30 35}} {b {35 60}}]" {
		t.Errorf("booted again: %v", got)
	}
}

// TestDroppedNotKnown: where it is not known what one migration dropped, 0 of another is not the good news.
func TestDroppedNotKnown(t *testing.T) {
	r := &Report{Migrations: []Migration{{Outcome: Completed, DroppedPackets: new(int64(0))}, {Outcome: InDoubt}, {Outcome: Refused}}}
	if c := droppedCard(r); c.Value != "0" || c.Class != "" || !strings.Contains(c.Note, "not known of 1 of 3 migrations") {
		t.Errorf("%+v", c)
	}
	var line strings.Builder
	if summaryTotals(&line, r, false); !strings.Contains(line.String(), "packets dropped 0 (not known of 1 of 3 migrations)") {
		t.Errorf("the summary says %q", line.String())
	}
	r.Migrations = r.Migrations[:1]
	if c := droppedCard(r); c.Class != "good" || strings.Contains(c.Note, "not known") {
		t.Errorf("%+v", c)
	}
}

// TestLinkDropsOnce: what links dropped while two guests moved is not told twice.
func TestLinkDropsOnce(t *testing.T) {
	both := Migration{Outcome: Completed, DroppedPackets: new(int64(0)), LinkDrops: new(int64(7))}
	r := &Report{LinkDrops: 9, Migrations: []Migration{both, both}}
	if c := droppedCard(r); !strings.Contains(c.Note, "9 by full links in all of the run") {
		t.Errorf("%+v", c)
	}
}

// TestWhyAWindowIsMissing: the page says of each time why nothing is known of it, under the names that the JSON has.
func TestWhyAWindowIsMissing(t *testing.T) {
	reasons := map[string]string{"mbps.before": "it did not run", "mbps.during": "it did not move", "mbps.after": "it had ended"}
	if c := windowsCell(Windows{}, "mbps", reasons); c != (cell{Text: dash, Hint: "before: it did not run; during: it did not move; after: it had ended", Class: "num null"}) {
		t.Errorf("%+v", c)
	}
	if c := windowsCell(Windows{Before: new(1.0), During: new(2.0)}, "mbps", reasons); c.Hint != "after: it had ended" || c.Class != "num" {
		t.Errorf("%+v", c)
	}
}

// TestRecordsNotKnown: where one flow's are not known, none lost of another is not the good news; a command has none.
func TestRecordsNotKnown(t *testing.T) {
	none := new(int64(0))
	r := &Report{Traffic: []Traffic{{Kind: "ticks", RecordsLost: none}, {Kind: "udp", RecordsRepeated: none, Corrupt: none}, {Kind: "exec"}}}
	if c := recordsCard(r); c.Value != "0" || c.Class != "" || !strings.Contains(c.Note, "not known of 1 of 3 flows") {
		t.Errorf("%+v", c)
	}
	r.Traffic[1].RecordsLost = none
	if c := recordsCard(r); c.Class != "good" || strings.Contains(c.Note, "not known") {
		t.Errorf("%+v", c)
	}
}

// TestCardsSayWhatTheyLack: the worst of some, or their sum, does not look like that of all.
func TestCardsSayWhatTheyLack(t *testing.T) {
	r := sample()
	noted := func(c card, want string) {
		t.Helper()
		if strings.Contains(c.Note, "not known") != (want != "") || !strings.Contains(c.Note, want) {
			t.Errorf("%s: %s, %q; want %q", c.Label, c.Value, c.Note, want)
		}
	}
	downtime := func() card {
		return worstMigration(r, "VM downtime", func(m *Migration) *float64 { return m.VMDowntimeMS })
	}
	noted(downtime(), "")
	noted(gapCard(r), "")
	noted(wireCard(r), "")
	r.Migrations[1].VMDowntimeMS, r.Migrations[1].WireBytes, r.Traffic[0].ServiceGapMS = nil, nil, nil
	noted(downtime(), "not known of 1 of 2 migrations")
	noted(wireCard(r), "not known of 1 of 2 migrations")
	noted(gapCard(r), "not known of 1 of 4 flows")
	r.Migrations[1].Outcome, r.Migrations[1].Phases, r.Traffic[0].Kind = Refused, nil, "exec" // these have none
	noted(downtime(), "")
	noted(wireCard(r), "")
	noted(gapCard(r), "")
}

// TestLongStep: what a step says has room on one side of its line, wherever that is, and all of it is at the pointer.
func TestLongStep(t *testing.T) {
	command := "exec in web: " + strings.Repeat("echo & ", 60) + "end"
	for at := range 40 {
		r := &Report{DurationS: 40, Series: &Series{Steps: []StepDone{{AtS: float64(at), Text: command}}}}
		p := &picture{r: r, win: span{0, 40}}
		m := p.marks()
		if x, w := p.x(float64(at)), 1.25*textWidth("x")*roomOfMark; m.list[0].left && x < w || !m.list[0].left && x+w > picWidth {
			t.Errorf("at %d s: at %v, to the left: %v", at, x, m.list[0].left)
		}
		if svg := p.foreground(m); !strings.Contains(svg, ">exec in web: ") || !strings.Contains(svg, "amp; end</title>") {
			t.Errorf("at %d s: %s", at, svg)
		}
	}
}
