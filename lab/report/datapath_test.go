package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sampleLanes is a run whose first migration took our own data path, and whose second ended
// opaque, after post-copy, with a coding that nobody knows.
func sampleLanes() *Report {
	r := sample()
	r.Scenario = "lanes"
	first, second := &r.Migrations[0], &r.Migrations[1]
	first.Transfer, second.Transfer = "lanes", "lanes"
	first.DataPath = json.RawMessage(`{"queue": 0, "largest_queue": 12500000, "largest_spill": 4096000, "hot_pages": 570, "rounds": 59, "read_bytes": 334039155,
		"sent_bytes": 60000000, "repeated": 1055827, "skipped": 19116, "missed": 0, "tail_bytes": 6918, "offered": 8228, "levels": {"off": 1001},
		"pages": {"batch": 15000, "delta": 1000, "known": 3000, "raw": 10000, "reference": 900, "same": 100, "zero": 10000},
		"bytes": {"batch": 18800000, "delta": 200000, "known": 35000, "raw": 40960000, "reference": 4000, "same": 0, "zero": 1000},
		"paths": [{"path": "public-public", "lanes": 1, "bytes": 45000000, "rate": 0, "rtt_ms": 20, "died": 0},
			{"path": "private-public", "lanes": 0, "bytes": 15000000, "rate": 0, "rtt_ms": 0, "died": 2, "last": "i/o <timeout>"}]}`)
	second.DataPath = json.RawMessage(`{"rounds": 2, "pages": {"raw": 300, "folded": 700}, "bytes": {"raw": 1228800, "folded": 70000}, "opaque": "section <dirty-bitmap>"}`)
	for n, m := range []*Migration{first, second} {
		from, took := m.RequestedS+m.Phases[3].StartS, m.Phases[4].EndS-m.Phases[3].StartS
		var rows []PageSample
		for i := range 31 {
			done := float64(i) / 30
			row := PageSample{T: from + done*took, Left: 256e6 * (1 - done), Queue: 20e6 * (1 - done), Delivered: 256e6 * done, Hot: 2e6 * done, Dirty: math.NaN()}
			if done > 0.5 {
				row.Dirty = 12
			}
			if n == 1 { // of QEMU's own transfer less is known
				row.Queue, row.Delivered, row.Hot = math.NaN(), math.NaN(), math.NaN()
			}
			rows = append(rows, row)
		}
		r.Series.AddPages(n+1, m.Guest, rows)
	}
	second.PostCopy = &PostCopy{Why: "the guest writes too fast", Pages: 700, Share: 0.25, Faults: 12, LongestMS: 80, MeanMS: 30, LastedS: 1.5}
	return r
}

func pageOf(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	keep(t, r.Scenario, b.Bytes())
	return b.String()
}

// TestDataPathShows: what the data path did is there in words and in bars, and what came from
// outside is escaped.
func TestDataPathShows(t *testing.T) {
	page := pageOf(t, sampleLanes())
	for _, want := range []string{
		"web, montreal → sanjose: 164 MB of memory as 60 MB", "60 MB, 36.6 %", // 40 000 pages
		">zero</i>", ">raw</i>", "batch: 61.4 MB", "up to 64, compressed together",
		">75 %<", ">61 Mbit/s<", ">2 times<", "i/o &lt;timeout&gt;", // 45 MB in 5.9 s
		"59", "570", "at most 12 Mbit/s", "2.33 MB written again", "12.5 MB", "4.1 MB of memory waited in a file", "19\u2009116", "1.06 MB",
		"passed on as it is:</strong> section &lt;dirty-bitmap&gt;", "Post-copy: 25 % of the pages came after", "Why: the guest writes too fast",
		`<i class="key" style="background:var(--mute)"></i>folded`, `background:var(--w1)"></i>private-public`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q", want)
		}
	}
	if n := strings.Count(pageOf(t, sample()), "Data path</h2>"); n != 0 {
		t.Error("a section on a data path that there was not")
	}
}

// TestUnopenedPath: of a path that never opened it is not said that it never broke; of one that opened at last, it is.
func TestUnopenedPath(t *testing.T) {
	for want, p := range map[string]PathShare{
		"never mute":        {Last: "connection refused, at first"},
		"never opened bad":  {Unopened: true, Died: 1, Bytes: 4096, Last: "no route to host"},
		"never opened mute": {Unopened: true},
		"2 times bad":       {Died: 2, Last: "i/o timeout"},
	} {
		d := &DataPath{Paths: []PathShare{p}}
		row := d.pathTable(&Report{}, &Migration{}).Rows[0]
		if got := row[4].Text + " " + row[4].Class; got != want {
			t.Errorf("%+v: %s, want %s", p, got, want)
		}
	}
}

// TestDataPathBars: both bars have one scale, and what has no bytes has no piece.
func TestDataPathBars(t *testing.T) {
	r := sampleLanes()
	bars := r.Migrations[0].dataPath().bars()
	for i, want := range []struct {
		sum   float64
		parts int
	}{{100, 7}, {60e6 / (40000 * 4096) * 100, 6}} {
		sum := 0.0
		for _, p := range bars[i].Parts {
			var width float64
			if _, err := fmt.Sscan(p.Width, &width); err != nil {
				t.Fatal(err)
			}
			sum += width
		}
		if len(bars[i].Parts) != want.parts || sum < want.sum-0.01 || sum > want.sum+0.01 {
			t.Errorf("%s: %d parts to %.2f %%, want %d to %.2f %%", bars[i].Label, len(bars[i].Parts), sum, want.parts, want.sum)
		}
	}
	for _, odd := range []string{"", "[]", `"x"`, "{"} {
		if d := (&Migration{DataPath: json.RawMessage(odd)}).dataPath(); d != nil {
			t.Errorf("%q was read as %+v", odd, d)
		}
	}
	if bars := (&DataPath{}).bars(); bars != nil {
		t.Errorf("bars of nothing: %+v", bars)
	}
}

// TestManyDataPathsAreFolded: a page of many migrations is not a page of their details.
func TestManyDataPathsAreFolded(t *testing.T) {
	r := sampleLanes()
	for range 5 {
		r.Migrations = append(r.Migrations, r.Migrations[0])
	}
	for _, v := range dataPaths(r) {
		if v.Open {
			t.Fatal("the details are open")
		}
	}
	if list := dataPaths(sampleLanes()); len(list) != 2 || !list[0].Open || !list[1].Open {
		t.Error("the details of two are not open")
	}
}

// TestCodings: the page knows the codings of docs/datapath.md, each by a colour of its own.
func TestCodings(t *testing.T) {
	doc, err := os.ReadFile("../../docs/datapath.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "| coding | meaning | rule |")
	if !found {
		t.Fatal("docs/datapath.md has no table of codings")
	}
	listed, _, _ := strings.Cut(rest, "\n\n")
	var names, known []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+) \|`).FindAllStringSubmatch(listed, -1) {
		names = append(names, row[1])
	}
	seen := map[string]bool{}
	for _, c := range codings {
		known = append(known, c.name)
		colours := regexp.MustCompile(`--`+c.color+`: (#[0-9a-f]{6});`).FindAllStringSubmatch(pageStyle, -1)
		if len(colours) != 2 {
			t.Errorf("%s: style.css has --%s %d times, want once for light and once for dark", c.name, c.color, len(colours))
			continue
		}
		for i, m := range colours {
			if key := fmt.Sprint(i, m[1]); seen[key] {
				t.Errorf("%s shares its colour", c.name)
			} else {
				seen[key] = true
			}
		}
	}
	if !slices.Equal(names, known) {
		t.Errorf("docs/datapath.md has %v, the page %v", names, known)
	}
}

// TestLargestQueue: what waited in a file is told also where nobody saw how long the queue was.
func TestLargestQueue(t *testing.T) {
	for _, c := range []struct {
		d           DataPath
		value, note string // "": no card
	}{
		{DataPath{}, "", ""},
		{DataPath{LargestQueue: 1e6}, "1 MB", "nothing was put into a file"},
		{DataPath{LargestQueue: 1e6, LargestSpill: 2e6}, "1 MB", "2 MB of memory waited in a file"},
		{DataPath{LargestSpill: 2e6}, dash, "2 MB of memory waited in a file"},
	} {
		var got card
		for _, k := range c.d.facts() {
			if k.Label == "Largest queue" {
				got = k
			}
		}
		if got.Value != c.value || got.Note != c.note {
			t.Errorf("%+v: %q, %q; want %q, %q", c.d, got.Value, got.Note, c.value, c.note)
		}
	}
}
