package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What YAML allows to say in another way is read as the same scenario.
func TestOtherWaysToSayIt(t *testing.T) {
	const plain = `name: Two hosts, and a cut
sites:
  - {name: Mont_Real, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public, rate: 50mbit, delay: 10ms}, {name: other, rate: 50mbit, delay: 10ms}]}
  - {name: b, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: public, rate: 50mbit, delay: 10ms}]}
clients: [{name: my_phone, uplinks: [{name: wifi}, {name: lte}]}]
guests: [{name: web_1, site: Mont_Real}]
expect: [{network_downtime: {guest: web_1, below: 2s}}]
steps:
  - {at: 1s, cut: {site: b, all: true, for: 1s}}
  - {at: 2s, exec: {guest: web_1, command: "true"}}
`
	want, err := Parse("f", []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(string) string{
		"mark of the byte order": func(s string) string { return "\ufeff" + s },
		"CRLF":                   func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
		"directive":              func(s string) string { return "%YAML 1.2\n---\n" + s },
		"anchor of a list": func(s string) string {
			link := "[{name: public, rate: 50mbit, delay: 10ms}]"
			return strings.Replace(strings.Replace(s, "[{name: public, rate: 50mbit, delay: 10ms}, {name: other, rate: 50mbit, delay: 10ms}]",
				"[&l {name: public, rate: 50mbit, delay: 10ms}, {name: other, rate: 50mbit, delay: 10ms}]", 1), link, "[*l]", 1)
		},
		"merge": func(s string) string {
			return strings.Replace(strings.Replace(s, "[{name: public", "[&l {name: public", 1), "{name: other, rate: 50mbit, delay: 10ms}", "{<<: *l, name: other}", 1)
		},
		"merge of several": func(s string) string {
			return strings.Replace(strings.Replace(s, "[{name: public", "[&l {name: public", 1), "{name: other, rate: 50mbit, delay: 10ms}", "{<<: [{name: other}, *l, {delay: 20ms}]}", 1)
		},
		"keys with question marks": func(s string) string { return strings.Replace(s, "name: Two", "? name\n: Two", 1) },
		"tags of YAML's own": func(s string) string {
			return strings.NewReplacer("sites:\n", "sites: !!seq\n", "{name: my_phone", "!!map {name: !!str my_phone", "all: true", "all: !!bool true").Replace(s)
		},
		"merge of none":             func(s string) string { return strings.Replace(s, "[{name: wifi}", "[{<<: [], name: wifi}", 1) },
		"a bound of the only guest": func(s string) string { return strings.Replace(s, "{guest: web_1, below: 2s}", "{below: 2s}", 1) },
		"names of uplinks":          func(s string) string { return strings.Replace(s, "[{name: wifi}, {name: lte}]", "[wifi, lte]", 1) },
		"all alone":                 func(s string) string { return strings.Replace(s, "all: true", "all", 1) },
		"a bare command":            func(s string) string { return strings.Replace(s, `"true"`, "true", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			text := change(plain)
			if text == plain {
				t.Fatal("nothing was changed")
			}
			got, err := Parse("f", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			for i := range got.Steps {
				got.Steps[i].Line = want.Steps[i].Line
			}
			for i := range got.Expect {
				got.Expect[i].Line = want.Expect[i].Line
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A few aliases of aliases stand for more than anybody could read: each costs its own
// length, and the bounds of lists hold.
func TestManyAliases(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: x\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 30; i++ {
		before := fmt.Sprintf("*a%d, ", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(before, 9), ", "))
	}
	b.WriteString("sites: *a29\n")
	if _, err := Parse("f", []byte(b.String())); err == nil {
		t.Error("was read")
	}
}

// TestWhatTheContractAllows: each change of a file leaves one that is read.
func TestWhatTheContractAllows(t *testing.T) {
	const file = `
name: x
sites:
  - {name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: public}]}
clients: [{name: phone}]
guests: [{name: web, site: a, disk: 1GiB, run: [cpu]}]
traffic: [{name: t, client: phone, guest: web, kind: udp}]
steps: [{at: 3s, migrate: {guest: web, to: a}}]
expect: [{service_gap: {traffic: t, below: 1s}}]
`
	for _, change := range [][2]string{
		{"10.1.1.0/24", "192.168.1.0/24"},
		{"at: 3s", "at: 3 s"},
		{"cpu", "disk rate=64mbit area=128MiB"},
		{"disk: 1GiB", "disk: 1GB"},
		{"disk: 1GiB", "disk: 100MB"},
		{"kind: udp", "kind: ticks, rate: 10kbit"},
		{"kind: udp", "kind: requests, rate: 10kbit, every: 1s"},
		{"kind: udp}]", "kind: udp}, {name: command, client: phone, guest: web, kind: exec, command: true, rate: 1mbit}]"},
		{"to: a", "to: a, mode: hybrid, transfer: qemu-tcp"}, // an agent refuses it
		{"to: a", "to: a, mode: postcopy, transfer: qemu-multifd"},
	} {
		text := strings.Replace(file, change[0], change[1], 1)
		if text == file {
			t.Errorf("%s: nothing was changed", change[1])
		}
		if _, err := Parse("f", []byte(text)); err != nil {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

// TestIdleKeys: a key that a flow's kind does not heed is allowed, and noted with its place.
func TestIdleKeys(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\n" +
		"clients: [{name: c}]\nguests: [{name: g, site: a}]\ntraffic:\n"
	for _, kind := range kinds {
		line := "  - {name: t, client: c, guest: g, kind: " + kind + ", family: v4, start: 1s, connections: 2, rate: 1mbit, every: 20ms, silent: true"
		if kind == "exec" {
			line += ", command: ls"
		}
		got, err := Parse("f", []byte(file+line+"}\n"))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		var want []Error
		note := func(key, heed string) {
			want = append(want, Error{File: "f", Line: 6, Col: strings.Index(line, key+":") + 1, What: key + " of traffic t does nothing with kind " + kind + ", but with " + heed})
		}
		if slices.Contains([]string{"download", "upload", "iperf3", "exec"}, kind) {
			note("every", "ticks, requests, udp")
		}
		if kind == "exec" {
			note("rate", "ticks, download, upload, requests, udp, iperf3")
			note("connections", "ticks, download, upload, requests, udp, iperf3")
		}
		if !slices.Contains([]string{"ticks", "requests"}, kind) {
			note("silent", "ticks, requests")
		}
		if !got.Traffic[0].Silent {
			t.Errorf("%s: not silent", kind)
		}
		if n := got.Traffic[0].Connections; n != 2 && kind != "exec" || n != 1 && kind == "exec" {
			t.Errorf("%s: %d connections", kind, n)
		}
		if diff := cmp.Diff(want, got.Idle); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", kind, diff)
		}
	}
}

// TestMoreJitterThanDelay: a link's delay is never below zero.
func TestMoreJitterThanDelay(t *testing.T) {
	got, err := Parse("f", []byte("name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p, delay: 1ms, jitter: 2ms}]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if u := got.Sites[0].Uplinks[0]; u.Jitter != u.Delay {
		t.Errorf("%+v", u)
	}
}

// TestLasting: a change of a link that lasts no time is over at once; one that does not say how long lasts to the end
// of the run.
func TestLasting(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nsteps: [{at: 1s, cut: {site: a, uplink: p%s}}, {at: 2s, degrade: {site: a, uplink: p, loss: 1%%%s}}]\n"
	for key, want := range map[string]time.Duration{"": 0, ", for: 0s": atOnce, ", for: 2s": 2 * time.Second} {
		got, err := Parse("f", fmt.Appendf(nil, file, key, key))
		if err != nil {
			t.Fatal(err)
		}
		if got.Steps[0].Cut.For != want || got.Steps[1].Degrade.For != want {
			t.Errorf("%q: cut for %v, degraded for %v", key, got.Steps[0].Cut.For, got.Steps[1].Degrade.For)
		}
		if said := "cut a/p" + strings.NewReplacer(", for:", " for").Replace(key); got.Steps[0].String() != said {
			t.Errorf("%q is told as %q, want %q", key, got.Steps[0], said)
		}
	}
}

// TestNoSide: a step that kills a QEMU need not say at which side of a migration, and is not taken to say one.
func TestNoSide(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nguests: [{name: g, site: a}]\nsteps: [{at: 1s, kill: {qemu: {%s}}}]\n"
	for keys, want := range map[string]Kill{
		"guest: g":                    {QEMU: "g"},
		"guest: g, side: source":      {QEMU: "g", Side: "source"},
		"guest: g, side: destination": {QEMU: "g", Side: "destination"},
	} {
		got, err := Parse("f", fmt.Appendf(nil, file, keys))
		if err != nil {
			t.Fatal(err)
		}
		said := strings.TrimSuffix("kill qemu of g at the "+want.Side, " at the ")
		if k := *got.Steps[0].Kill; k != want || got.Steps[0].String() != said {
			t.Errorf("%s: %+v, %q", keys, k, got.Steps[0])
		}
	}
}

// TestWholeSectors: a disk has whole sectors, so many at least as were asked for.
func TestWholeSectors(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nguests: [{name: g, site: a, disks: [%s]}]\n"
	got, err := Parse("f", fmt.Appendf(nil, file, "1MiB, 1048577B, 100MB, 1GB, 16TiB"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{1 << 20, 1<<20 + 512, 100_000_256, 1e9, 1 << 44}; !slices.Equal(got.Guests[0].Disks, want) {
		t.Errorf("%d, want %d", got.Guests[0].Disks, want)
	}
	for _, size := range []string{"0", "1023KiB", "1048575B", "17TiB"} {
		if _, err := Parse("f", fmt.Appendf(nil, file, size)); err == nil {
			t.Errorf("a disk of %s was taken", size)
		}
	}
}

// TestShortTimeout: a run whose timeout is short can end before it, whatever the file leaves out.
func TestShortTimeout(t *testing.T) {
	for end, want := range map[string]End{
		"{timeout: 4s}":   {2 * time.Second, 4 * time.Second},
		"{timeout: 10s}":  {5 * time.Second, 10 * time.Second},
		"{timeout: 180s}": {5 * time.Second, 180 * time.Second},
		"{after_last_migration: 4s, timeout: 5s}": {4 * time.Second, 5 * time.Second},
		"{after_last_migration: 0}":               {0, leastTimeout},
	} {
		got, err := Parse("f", []byte("name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nend: "+end+"\n"))
		if err != nil || got.End != want {
			t.Errorf("%s: %+v, %v, want %+v", end, got, err, want)
		}
	}
}

// TestAtTheTimeout: what begins, or has to be over, as a run ends is in it by chance, or not.
func TestAtTheTimeout(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nclients: [{name: c, at: internet}]\nguests: [{name: g, site: a}]\nend: {timeout: 60s}\n"
	for name, c := range map[string]struct{ at, before string }{
		"step":   {"steps: [{at: 60s, abort: {guest: g}}]", "steps: [{at: 59s, abort: {guest: g}}]"},
		"plus":   {"steps: [{at: {guest: g, phase: copy, plus: 1m}, abort: {guest: g}}]", "steps: [{at: {guest: g, phase: copy, plus: 59s}, abort: {guest: g}}]"},
		"gap":    {"steps: [{at: 20s, move: {client: c, to: a, gap: 40s}}]", "steps: [{at: 20s, move: {client: c, to: a, gap: 39s}}]"},
		"starts": {"traffic: [{name: f, client: c, guest: g, kind: ticks, start: 60s}]", "traffic: [{name: f, client: c, guest: g, kind: ticks, start: 59s}]"},
	} {
		if _, err := Parse("f", []byte(file+c.at+"\n")); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "before the end, timeout 1m0s; allowed: a time before end.timeout") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Parse("f", []byte(file+c.before+"\n")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLinesOfWindows: a file whose lines end in CRLF says what it says with others, and has its places.
func TestLinesOfWindows(t *testing.T) {
	const wrong = "# a\n# b\nname: x\nsitse: []   # c\n\nstpes: 'a\n  b'\n"
	for _, end := range []string{"\n", "\r\n", "\r"} {
		_, err := Parse("f", []byte(strings.ReplaceAll(wrong, "\n", end)))
		if err == nil || !strings.Contains(err.Error(), "f:4:1: ") || !strings.Contains(err.Error(), "f:6:1: ") {
			t.Errorf("%q: %v", end, err)
		}
	}
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nguests: [{name: g, site: a}]\n" +
		"steps:\n  - at: 1s\n    exec:\n      guest: g\n      command: \"a\n        b\"\n"
	for _, end := range []string{"\n", "\r\n", "\r"} {
		s, err := Parse("f", []byte(strings.ReplaceAll(file, "\n", end)))
		if err != nil {
			t.Errorf("%q: %v", end, err)
		} else if got := s.Steps[0].Exec.Command; got != "a b" {
			t.Errorf("%q: %q", end, got)
		}
	}
}

// TestFoldedAtTheEnd: the last line of a folded text goes on the one before, also at the end of the file, and where it
// is one character.
func TestFoldedAtTheEnd(t *testing.T) {
	const file = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nguests: [{name: g, site: a}]\n" +
		"steps:\n  - at: 1s\n    exec:\n      guest: g\n      command: >\n        test 1 -eq\n        1"
	for _, end := range []string{"", "\n", " \n\n", "\r\n", "\n\t", "\nend: {timeout: 1m}\n"} {
		s, err := Parse("f", []byte(file+end))
		if err != nil {
			t.Errorf("%q: %v", end, err)
		} else if got := s.Steps[0].Exec.Command; strings.TrimSpace(got) != "test 1 -eq 1" {
			t.Errorf("%q: %q", end, got)
		}
	}
}
