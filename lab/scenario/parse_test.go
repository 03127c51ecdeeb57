package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"godwit/internal/need"
	"godwit/internal/yamltext"
)

var update = flag.Bool("update", false, "write what is seen into testdata")

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The example of the contract, with its defaults, as a value.
func TestContractExample(t *testing.T) {
	got, err := Parse("contract.yaml", read(t, "contract.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Scenario{
		Name: "cross-subnet",
		File: "contract.yaml",
		Sites: []Site{{
			Name: "montreal", Hosts: 1,
			GuestV4: netip.MustParsePrefix("10.1.1.0/24"), GuestV6: netip.MustParsePrefix("fd00:1:1::/64"),
			Uplinks: []Uplink{
				{Name: "public", Carries: CarriesBoth, Rate: 350e6, Delay: 10 * time.Millisecond, MTU: 1500},
				{Name: "private", Carries: CarriesMigration, Rate: 100e6, Delay: 30 * time.Millisecond, MTU: 1500},
			},
		}, {
			Name: "sanjose", Hosts: 1, GuestV4: netip.MustParsePrefix("10.2.1.0/24"),
			Uplinks: []Uplink{{Name: "public", Carries: CarriesBoth, Rate: 350e6, Delay: 10 * time.Millisecond, MTU: 1500}},
		}},
		Clients: []Client{{Name: "phone", At: "sanjose", MPTCP: "full", Uplinks: 1, UplinkNames: []string{"eth0"}, AddAddrAccepted: 8}},
		Guests: []Guest{{Name: "web", Site: "montreal", Memory: 256 << 20, VCPUs: 1, Disks: []int64{1 << 30}, Image: "tiny", Agent: "godwit",
			Network: "auto", Run: []string{"dirty size=100MiB hot=12% rate=8MiB/s"}}},
		Traffic: []Traffic{{Name: "ticks", Client: "phone", Guest: "web", Kind: "ticks", Every: 10 * time.Millisecond, Connections: 1, Family: "v4"}},
		Steps: []Step{
			{At: At{Time: 3 * time.Second}, Migrate: &Migrate{Guest: "web", To: "sanjose", Mode: "auto", Transfer: "auto", Network: "mptcp", Downtime: 300 * time.Millisecond}, Line: 16},
			{At: At{Time: 20 * time.Second}, MoveClient: &MoveClient{Client: "phone", To: "sanjose", Gap: 5 * time.Second}, Line: 19},
			{At: At{Time: 30 * time.Second}, Exec: &Exec{Guest: "web", Command: "…"}, Line: 20},
			{At: At{Guest: "web", Phase: "copy", Plus: 500 * time.Millisecond}, Cut: &Cut{Site: "montreal", Uplink: "public", For: 5 * time.Second}, Line: 17},
			{At: At{Guest: "web", Phase: "switch"}, Kill: &Kill{Agent: "montreal", RestartAfter: time.Second, Restart: true}, Line: 18},
		},
		End: End{AfterLastMigration: 5 * time.Second, Timeout: 180 * time.Second},
		Expect: []Expect{
			{Kind: ExpectMigrations, Outcomes: []string{"completed"}, Line: 23},
			{Kind: ExpectConnections, Line: 24},
			{Kind: ExpectServiceGap, Traffic: "ticks", Below: 500 * time.Millisecond, Line: 25},
			{Kind: ExpectLeftovers, Line: 26},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Both values of connections are kinds of their own.
func TestConnectionsExpected(t *testing.T) {
	s, err := Parse("x.yaml", []byte("name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nexpect: [{connections: survive}, {connections: moved}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Expect) != 2 || s.Expect[0].Kind != ExpectConnections || s.Expect[1].Kind != ExpectMoved {
		t.Errorf("%+v", s.Expect)
	}
}

// Datagrams of many connections are further apart, unless the file says how far.
func TestDatagramsApart(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\n" +
		"clients: [{name: c, at: a}]\nguests: [{name: g, site: a}]\ntraffic: [{name: t, client: c, guest: g, %s}]\n"
	for what, want := range map[string]time.Duration{
		"kind: udp": 10 * time.Millisecond,
		"kind: udp, connections: 5, rate: 1Mbit/s":      10 * time.Millisecond,
		"kind: udp, connections: 20, rate: 1Mbit/s":     40 * time.Millisecond,
		"kind: udp, connections: 10000":                 time.Second,
		"kind: udp, connections: 20, every: 10ms":       10 * time.Millisecond,
		"kind: ticks, connections: 20":                  10 * time.Millisecond,
		"kind: requests, connections: 9, rate: 1Mbit/s": 0,
	} {
		got, err := Parse("x.yaml", fmt.Appendf(nil, file, what))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if every := got.Traffic[0].Every; every != want {
			t.Errorf("%s: every %v, want %v", what, every, want)
		}
	}
}

// Block style and every key of the table, read as golden JSON.
func TestEveryKey(t *testing.T) {
	got, err := Parse("block.yaml", read(t, "block.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile("testdata/block.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, "block.json")), string(text)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Every file of wrong.txtar gives exactly the lines that follow it there.
func TestWrongFiles(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/wrong.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var out txtar.Archive
	out.Comment = archive.Comment
	want := map[string]string{}
	for _, f := range archive.Files {
		want[f.Name] = string(f.Data)
	}
	for _, f := range archive.Files {
		name, isFile := strings.CutSuffix(f.Name, ".yaml")
		if !isFile {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s, err := Parse(f.Name, f.Data)
			if err == nil {
				t.Fatalf("was read, as %+v", s)
			}
			if s != nil {
				t.Error("gave a scenario beside the error")
			}
			seen := err.Error() + "\n"
			out.Files = append(out.Files, f, txtar.File{Name: name + ".err", Data: []byte(seen)})
			if diff := cmp.Diff(want[name+".err"], seen); diff != "" && !*update {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile("testdata/wrong.txtar", txtar.Format(&out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := Parse("f", []byte("name: x\n"+strings.Repeat("nmae: y\n", 30)))
	var all *Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %T %v", err, err)
	}
	if len(all.List) != 10 || all.More != 21 {
		t.Errorf("got %d and %d more, want 10 and 21", len(all.List), all.More)
	}
	var one Error
	if !errors.As(err, &one) || one.Line != 1 {
		t.Errorf("first is %+v", one)
	}
}

// A file that is deep or long is refused before the parser meets it.
func TestUnreasonableFiles(t *testing.T) {
	for name, data := range map[string]string{
		"brackets": strings.Repeat("[", 100_000),
		"braces":   strings.Repeat("{a: ", 50_000),
		"dashes":   strings.Repeat("- ", 100_000),
		"long":     strings.Repeat("# comment\n", 100_000),
		"keys":     strings.Repeat("a: {b: 1}\n", 6_000),
		"lines":    strings.Repeat("name: x\n", 100_000),
		"empty":    "steps:\n" + strings.Repeat("- \n", 330_000),
		"aliases":  repeats("{name: a, run: &r ["+strings.Repeat("x,", 4096)+"]}", "{name: b, run: *r}"),
		"merges":   repeats("&r {"+strings.Repeat("a: 1, ", 20_000)+"}", "{<<: *r, name: b}"),
		"indent":   stairs(400),
		"names":    unknownNames(),
		"places":   manyPlaces() + "- {at: 1s, migrate: {guest: g1, to: nowhere}}\n",
		"nothing":  "",
		"binary":   "\x00\x01\xff\xfe{{{",
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // whose time is taken, and not that of a busy machine
			defer runtime.UnlockOSThread()
			start := need.Processor(t)
			if _, err := Parse("f", []byte(data)); err == nil {
				t.Error("was read")
			} else if lines := strings.Count(err.Error(), "\n"); lines > 10 {
				t.Errorf("%d lines of errors", lines)
			}
			if took := need.Processor(t) - start; took > 5*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// unknownNames is a file with as many flows as a list has, and as many expectations of others, whose names are nearly theirs.
func unknownNames() string {
	var flows, expects strings.Builder
	for i := range yamltext.MaxList {
		fmt.Fprintf(&flows, "- {name: traffic-with-a-longer-name-%d}\n", i)
		fmt.Fprintf(&expects, "- {service_gap: {traffic: traffix-with-a-longer-nome-%d, below: 1s}}\n", i+yamltext.MaxList)
	}
	return "name: x\ntraffic:\n" + flows.String() + "expect:\n" + expects.String()
}

// manyPlaces is a file with as many hosts as there may be, and a guest and a step for each of a list's entries at one of the
// last.
func manyPlaces() string {
	var sites, guests, steps strings.Builder
	for i := range maxSites {
		fmt.Fprintf(&sites, "- {name: a-site-with-a-name-%d, hosts: %d, guest_net: {v4: 10.%d.0.0/24}, uplinks: [{name: p}]}\n", i, maxHosts, i)
	}
	last := fmt.Sprintf("a-site-with-a-name-%d-%d", maxSites-1, maxHosts)
	for i := range yamltext.MaxList - 1 {
		fmt.Fprintf(&guests, "- {name: g%d, site: %s}\n", i, last)
		fmt.Fprintf(&steps, "- {at: 1s, migrate: {guest: g%d, to: %s}}\n", i, last)
	}
	return "name: x\nsites:\n" + sites.String() + "guests:\n" + guests.String() + "steps:\n" + steps.String()
}

// repeats is a file with one guest, and thousands of others that are said by it.
func repeats(first, others string) string {
	return "name: x\nguests:\n  - " + first + "\n" + strings.Repeat("  - "+others+"\n", 4000)
}

// TestLargeAndOddFiles: what is refused of them is told by its place, and what a large scenario needs is read.
func TestLargeAndOddFiles(t *testing.T) {
	sites := "name: x\nsites: [{name: a, guest_net: {v4: 10.1.0.0/16}, uplinks: [{name: p}]}]\n"
	var guests, steps strings.Builder
	for i := range 4096 {
		fmt.Fprintf(&guests, "- name: g%d\n  site: a\n  run: %s\n", i, []string{"&r [cpu, http]", "*r"}[min(i, 1)])
		fmt.Fprintf(&steps, "  - at: 1s\n    abort:\n      guest: g%d\n", i)
	}
	for _, c := range []struct{ text, says string }{
		{sites + "guests:\n" + guests.String() + "steps:\n" + steps.String(), ""},
		{sites + "steps:\n" + strings.Repeat("  -\n", 4097), "f:4100:3: too many entries without a value; allowed: at most 4096"},
		{sites + strings.Repeat("clients:\n", 4095), "f:4097:1: too many keys in one map; allowed: at most 4096"},
		{sites + "guests:\n" + guests.String() + "steps:\n  - {at: 1s, abort: {guest: h}}\n",
			`f:12293:29: unknown guest "h"; allowed: g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15, g16, g17, g18, g19, g20, g21, g22, g23, g24, g25, g26, g27, g28, g29, and 4066 more`},
		{repeats("{name: a, run: &r ["+strings.Repeat("x,", 4095)+"x]}", "{name: b, run: *r}"),
			"f:35:20: the aliases up to here stand for too much; allowed: lists and maps that have 131072 entries together at most, as often as they are named"},
		{sites + "guests: [{name: g, site: a}]\nsteps: [{at: 1s, exec: {guest: g, command: \"a\\0b\"}}]\n", "f:4:44: command of exec has a zero byte, which no program can be given; allowed: a shell command"},
		{sites + "steps: [{at: 1s, cut: {site: a, uplink: p, all: true}}]\n", "f:3:23: cut has both uplink and all; allowed: uplink: NAME, or uplink: all"},
		{sites + "guests: [{name: g, site: a, vcpus: .inf}]\n", "f:3:36: vcpus of guest g is the number .inf; allowed: a whole number from 1 to 64"},
	} {
		if _, err := Parse("f", []byte(c.text)); (err == nil) != (c.says == "") || err != nil && err.Error() != c.says {
			t.Errorf("%.300s, want %s", fmt.Sprint(err), c.says)
		}
	}
}

// A file in another encoding is refused where it first shows: its names would be others in report.json.
func TestOtherEncodings(t *testing.T) {
	text := string(read(t, "contract.yaml"))
	for name, c := range map[string]struct{ text, place string }{
		"latin1": {"# é\n# ☕ caf\xe9\n" + text, "f:2:8: "},
		"utf16":  {"\xff\xfen\x00a\x00", "f:1:1: "},
	} {
		_, err := Parse("f", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.place+"not text in UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse("f", []byte(strings.Replace(text, "cross-subnet", "café ☕", 1))); err != nil {
		t.Errorf("UTF-8: %v", err)
	}
}

// Rulers and long commands are no deep nesting.
func TestRulers(t *testing.T) {
	text := "# " + strings.Repeat("-", 200) + "\n# " + strings.Repeat("[x] {y} ", 100) + "\n" + string(read(t, "contract.yaml"))
	if _, err := Parse("f", []byte(text)); err != nil {
		t.Error(err)
	}
}

func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"contract.yaml", "block.yaml", "wrong.txtar"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{
		"\x1b[31m: 1\n", "\"\\e[31m\": 1\n", "name: \"\\e[31m\"\nsites: *\x1b\n", "name: \"x\x1b", "name: &\x1b x\n", "!\x1b x", "? \x1b\n: \x9b",
		"name: t\nsites:\n  - {name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p, rate: .nan, delay: -1s, loss: 1e400%}]}\nguests: [{name: g, site: a, run: [\"\\e dirty size=\\e\"]}]\n",
		"%YAML \x1b\n---\n" + strings.Repeat("k", 9000) + ": [\n", "a: |\x1b\n", "\u2028: \u202e\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("f", data)
		if (s == nil) == (err == nil) {
			t.Fatalf("scenario %v and error %v", s, err)
		}
		if err != nil {
			fitToShow(t, data, err)
		}
	})
}

// fitToShow: what is said of a file is some short lines without anything that a terminal would act upon, each with a place that
// the file has.
func fitToShow(t *testing.T, data []byte, err error) {
	t.Helper()
	said := strings.Split(err.Error(), "\n")
	if len(said) > maxErrors+1 {
		t.Errorf("%d lines", len(said))
	}
	for _, line := range said {
		if len(line) > 4096 || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%.5000q", line)
		}
	}
	var all *Errors
	if !errors.As(err, &all) {
		t.Fatalf("%T", err)
	}
	lines := 1 + bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) - bytes.Count(data, []byte("\r\n"))
	for _, e := range all.List {
		if e.Line < 1 || e.Line > lines || e.Col < 1 || e.Col > len(data)+1 {
			t.Errorf("no such place: %v", e)
		}
	}
}
