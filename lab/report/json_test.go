package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write what is seen into testdata")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, seen []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, seen, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(seen)); diff != "" {
		t.Errorf("%s (-want +got)\n%s", name, diff)
	}
}

func written(t *testing.T, r *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	lanes := sampleLanes()
	for i := range lanes.Migrations {
		lanes.Migrations[i].DataPath = nil // indented as it is written
	}
	for _, r := range []*Report{sample(), sampleBad(), lanes} {
		for i := range r.Migrations { // what Write adds
			r.Migrations[i].WhyNull = explained(r.Migrations[i].WhyNull, r.Migrations[i].numbers())
		}
		r.Series.Flow("ticks", "ticks").Add(99, math.NaN(), math.Inf(1), 1)
		got, err := Read(bytes.NewReader(written(t, r)))
		if err != nil {
			t.Fatal(err)
		}
		f := r.Series.Flow("ticks", "ticks")
		f.RTT[len(f.RTT)-1] = math.NaN()
		near := cmpopts.EquateApprox(0, 0.0006)
		if diff := cmp.Diff(r, got, near, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func TestGoldenJSON(t *testing.T) {
	r := sample()
	r.Series = nil
	golden(t, "report.json", written(t, r))
}

// The contract's example, whose every field an empty report has too.
func TestContractFields(t *testing.T) {
	var want any
	example, err := os.ReadFile("testdata/contract.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(example, &want); err != nil {
		t.Fatal(err)
	}
	r := &Report{Migrations: make([]Migration, 1), Traffic: make([]Traffic, 1)}
	var got any
	if err := json.Unmarshal(written(t, r), &got); err != nil {
		t.Fatal(err)
	}
	missing(t, "", want, got)
	if _, err := Read(bytes.NewReader(example)); err != nil {
		t.Errorf("the contract's example: %v", err)
	}
}

// TestNoListIsNull: an empty report has lists, and its caller's is left as it was.
func TestNoListIsNull(t *testing.T) {
	r := &Report{Series: &Series{}, Migrations: []Migration{{Survival: &Survival{}}}, Traffic: make([]Traffic, 1)}
	text := string(written(t, r))
	for _, list := range []string{
		"unmet", "leftovers", "unreached", "troubles", "phases", "connections", "flows", "probes", "subflows", "paths", "pages", "events", "steps",
	} {
		if !strings.Contains(text, `"`+list+`": []`) {
			t.Errorf("list %s is null, or not there", list)
		}
	}
	if r.Series.Flows != nil || r.Migrations[0].Survival.Connections != nil {
		t.Error("what was written was changed")
	}
}

// missing reports every key of want that got has not, through maps and the
// first entries of lists.
func missing(t *testing.T, path string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s is %T", path, got)
			return
		}
		for key, value := range want {
			if _, there := have[key]; !there && path != ".migrations.wire_bytes_by_path" {
				t.Errorf("%s.%s is missing", path, key)
				continue
			}
			missing(t, path+"."+key, value, have[key])
		}
	case []any:
		have, ok := got.([]any)
		if !ok {
			t.Errorf("%s is %T, not a list", path, got)
			return
		}
		if len(want) > 0 && len(have) > 0 {
			missing(t, path, want[0], have[0])
		}
	}
}

// Every null has a reason, also where nobody gave one.
func TestEveryNullIsExplained(t *testing.T) {
	r := &Report{Migrations: make([]Migration, 1), Traffic: make([]Traffic, 1)}
	r.Migrations[0].Null("rounds", "stop-copy has none")
	r.Traffic[0].Null("corrupt", "no pattern")
	var got map[string]any
	if err := json.Unmarshal(written(t, r), &got); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"migrations", "traffic"} {
		one := got[list].([]any)[0].(map[string]any)
		reasons := one["why_null"].(map[string]any)
		for name, v := range one {
			if _, said := reasons[name]; v == nil && !said {
				t.Errorf("%s: %s is null without a reason", list, name)
			}
		}
	}
	if r.Traffic[0].WhyNull["bytes"] != "" {
		t.Error("Write changed the report")
	}
}

func TestColumnJSON(t *testing.T) {
	c := Column{0, 1, 1.5, 0.0004, -2, 100, math.NaN(), math.Inf(-1)}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[0,1,1.5,0,-2,100,null,null]"; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if err := json.Unmarshal([]byte(`[1,"x"]`), &c); err == nil {
		t.Error("read a string as a number")
	}
}

func TestSummary(t *testing.T) {
	var b bytes.Buffer
	Summary(&b, sample(), false)
	golden(t, "summary.txt", b.Bytes())
	b.Reset()
	Summary(&b, sampleBad(), true)
	golden(t, "summary-bad.txt", b.Bytes())

	r := sampleLanes()
	r.Migrations[1].Notes = []string{"QEMU's stream is passed on as it is", "another", "a third"}
	b.Reset()
	Summary(&b, r, false)
	for _, want := range []string{"  note, web sanjose → dublin: QEMU's stream is passed on as it is\n", "  note, web sanjose → dublin: another (and 1 more in report.json)\n", "post-copy, web sanjose → dublin: 25 %"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, &b)
		}
	}
	r.Migrations[0].PostCopy = r.Migrations[1].PostCopy
	b.Reset()
	if Summary(&b, r, false); !strings.Contains(b.String(), "post-copy, web montreal → sanjose: 25 %") || !strings.Contains(b.String(), "longest 80 ms) (and 1 more in report.json)\n") {
		t.Errorf("the summary tells of one post-copy as if there were no other:\n%s", &b)
	}
	if page := pageOf(t, r); !strings.Contains(page, "<li>migration 2 (web sanjose → dublin): a third</li>") {
		t.Error("the page has not what the agents remarked")
	}

	r = sampleBad()
	for range 50 {
		r.Migrations = append(r.Migrations, r.Migrations[0])
		r.Traffic = append(r.Traffic, r.Traffic[0])
		r.Unmet = append(r.Unmet, "one more")
		r.Leftovers = append(r.Leftovers, "thing")
		r.Migrations[0].Notes = append(r.Migrations[0].Notes, "a remark")
	}
	r.Migrations[0].PostCopy, r.Migrations[0].Throttled, r.Migrations[0].Survival = &PostCopy{}, &Throttled{}, &Survival{Total: 1, Moved: 1}
	for _, moves := range []int{50, 2} {
		r.Migrations = r.Migrations[:moves]
		b.Reset()
		Summary(&b, r, false)
		if n := strings.Count(b.String(), "\n"); n > 30 {
			t.Errorf("%d lines of %d migrations, want at most 30", n, moves)
		}
	}
}

// TestEveryNullHasItsReason: what is null, at whatever depth, has one under its name in the flow or migration that it is of.
func TestEveryNullHasItsReason(t *testing.T) {
	r := &Report{Migrations: make([]Migration, 1), Traffic: make([]Traffic, 1)}
	r.Migrations[0].Null("predicted", "it was not asked for")
	var out struct{ Migrations, Traffic []map[string]any }
	if err := json.Unmarshal(written(t, r), &out); err != nil {
		t.Fatal(err)
	}
	for _, of := range []map[string]any{out.Migrations[0], out.Traffic[0]} {
		reasons := of["why_null"].(map[string]any)
		if why := reasons["predicted.downtime_ms"]; of["predicted"] != nil && why != "it was not asked for" {
			t.Errorf("predicted.downtime_ms: %v", why)
		}
		delete(of, "why_null")
		nulls := 0
		var look func(name string, value any)
		look = func(name string, value any) {
			within, isMap := value.(map[string]any)
			for key, v := range within {
				look(strings.TrimPrefix(name+"."+key, "."), v)
			}
			if isMap || value != nil {
				return
			}
			if nulls++; reasons[name] == nil || reasons[name] == "" {
				t.Errorf("%s is null without a reason", name)
			}
		}
		look("", of)
		if nulls < 12 {
			t.Errorf("%d nulls", nulls)
		}
	}
}
