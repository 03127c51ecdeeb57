package live

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func status(sec float64, phase string, flows int) Status {
	s := Status{Title: "demo", Elapsed: time.Duration(sec * float64(time.Second)),
		Moves: []Move{{Guest: "web", From: "montreal", To: "sanjose", Phase: phase, Since: 400 * time.Millisecond,
			What: "memory", Copied: 128 << 20, Total: 256 << 20, Round: 2, Mbps: 310, Remaining: 2300 * time.Millisecond, Details: "queue 11 MB, public-public 51 Mbit/s"}}}
	for i := range flows {
		s.Flows = append(s.Flows, Flow{Name: fmt.Sprintf("flow%d", i), Mbps: 100 + 50*math.Sin(sec+float64(i)), RTT: 20 * time.Millisecond,
			Longest: time.Duration(i*100) * time.Millisecond, Subflows: 1 + i%2})
	}
	return s
}

// screen plays what was written on a terminal of the given width, with the few
// control sequences that the view uses, and gives its lines.
func screen(t *testing.T, text string, width int) []string {
	t.Helper()
	lines := [][]rune{nil}
	row, col := 0, 0
	csi := regexp.MustCompile(`^\x1b\[(\??[0-9;]*)([A-Za-z])`)
	for len(text) > 0 {
		if m := csi.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			switch m[2] {
			case "A":
				var n int
				if _, err := fmt.Sscan(m[1], &n); err != nil || n > row {
					t.Fatalf("up %s from row %d", m[1], row)
				}
				row -= n
			case "J":
				lines = lines[:row+1]
				lines[row] = lines[row][:min(col, len(lines[row]))]
			case "K":
				lines[row] = lines[row][:min(col, len(lines[row]))]
			case "m", "h", "l":
			default:
				t.Fatalf("unknown sequence %q", m[0])
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch r {
		case '\n':
			row, col = row+1, 0
			for len(lines) <= row {
				lines = append(lines, nil)
			}
		case '\r':
			col = 0
		default:
			if col < width {
				for len(lines[row]) <= col {
					lines[row] = append(lines[row], ' ')
				}
				lines[row][col] = r
				col++
			}
		}
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.TrimRight(string(l), " ")
	}
	return out
}

// The block replaces itself; lines that were logged stay above it.
func TestTerminal(t *testing.T) {
	var b bytes.Buffer
	v := New(&b, true)
	for i := range 40 {
		v.Update(status(float64(i)*0.5, "copy", 3))
		if i == 20 {
			v.Log("cut montreal/public for 5s")
		}
	}
	v.Close()
	v.Update(status(99, "settle", 3))
	lines := screen(t, b.String(), 200)
	if lines[0] != "cut montreal/public for 5s" {
		t.Errorf("first line is %q", lines[0])
	}
	text := strings.Join(lines, "\n")
	for want, n := range map[string]int{"demo  0:19": 1, "web montreal → sanjose": 1, "▶ copy 0.4s": 1, "50 % of 256 MiB, round 2, 310 Mbit/s, about 2.3s left": 1, "queue 11 MB, public-public 51 Mbit/s": 1, "flow2": 1, "1 subflow\n": 1, "2 subflows": 1} {
		if got := strings.Count(text+"\n", want); got < n {
			t.Errorf("%q is there %d times, want %d, in\n%s", want, got, n, text)
		}
	}
	if len(lines) != 1+8+1 {
		t.Errorf("%d lines, want 10:\n%s", len(lines), text)
	}
	if !strings.HasSuffix(b.String(), "\x1b[?25h") {
		t.Error("the cursor stays hidden")
	}
}

// A narrow terminal cuts lines and does not wrap them.
func TestNarrow(t *testing.T) {
	var b bytes.Buffer
	v := New(&b, true)
	v.Update(status(1, "copy", 3))
	v.Update(status(2, "switch", 3))
	if lines := screen(t, b.String(), 40); strings.Count(strings.Join(lines, "\n"), "demo") != 1 {
		t.Errorf("two blocks:\n%s", strings.Join(lines, "\n"))
	}
	if off, on := strings.Count(b.String(), "\x1b[?7l"), strings.Count(b.String(), "\x1b[?7h"); off != on || off == 0 {
		t.Errorf("wrapping was put off %d times and on %d times", off, on)
	}
}

// TestShort: on a terminal with fewer rows than the block has lines, the cursor comes back to the block's beginning,
// and what is left out is said. Nobody knows the rows of some terminals.
func TestShort(t *testing.T) {
	up := regexp.MustCompile(`\x1b\[([0-9]+)A`)
	for rows, want := range map[int]string{0: "flow10", 17: "flow10", 16: "and 2 more lines", 10: "and 8 more lines", 3: "and 15 more lines", 2: "demo", 1: "demo"} {
		var b bytes.Buffer
		v := New(&b, true)
		v.Rows(func() int { return rows })
		for sec := range 3 {
			v.Update(status(float64(sec), "copy", 11))
		}
		text := strings.Join(screen(t, b.String(), 200), "\n")
		if strings.Count(text, "demo  0:02") != 1 || !strings.Contains(text, want) {
			t.Errorf("%d rows: no %q in\n%s", rows, want, text)
		}
		for _, m := range up.FindAllStringSubmatch(b.String(), -1) {
			if n, err := strconv.Atoi(m[1]); err != nil || rows > 1 && n >= rows {
				t.Errorf("%d rows: the cursor goes up by %s", rows, m[1])
			}
		}
	}
}

func TestBlockIsBounded(t *testing.T) {
	s := status(1, "copy", 100)
	for range 20 {
		s.Moves = append(s.Moves, s.Moves[0])
	}
	for _, moves := range []int{21, 4, 3, 2, 1} {
		s.Moves = s.Moves[:moves]
		lines := New(nil, true).block(s)
		if n := len(lines); n > 24 {
			t.Errorf("%d lines of %d moves, want at most 24", n, moves)
		}
		if n := strings.Count(strings.Join(lines, "\n"), "queue 11 MB"); n != map[bool]int{true: moves}[moves <= maxDetailed] {
			t.Errorf("%d of %d moves have their details", n, moves)
		}
	}
}

func TestPlain(t *testing.T) {
	var b bytes.Buffer
	v := New(&b, false)
	for i := range 30 {
		s := status(float64(i)/10, "copy", 1)
		if i >= 15 { // the switch was over between two looks
			s.Moves[0].Phase, s.Moves[0].Began = "handover", []string{"copy", "switch", "handover"}
		}
		v.Update(s)
	}
	v.Log("done")
	v.Close()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if strings.Contains(b.String(), "\x1b") {
		t.Error("control sequences where there is no terminal")
	}
	want := []string{"0:00 web montreal → sanjose: copy", "0:00 | web copied 128 of 256 MiB of memory, round 2, 310 Mbit/s, about 2.3s left, queue 11 MB, public-public 51 Mbit/s | flow0", "0:01 | ", "0:01 web montreal → sanjose: switch", "0:01 web montreal → sanjose: handover", "0:02 | ", "done"}
	if len(lines) != len(want) {
		t.Fatalf("got\n%s", b.String())
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d is %q, want %q…", i, lines[i], want[i])
		}
	}
}

// TestWhatIsCopied: a disk is not called memory, and of what is over nothing is shown.
func TestWhatIsCopied(t *testing.T) {
	for what, want := range map[string]string{"disk": "disk", "memory that follows": "memory that follows", "": ""} {
		s := status(1, "copy", 0)
		s.Moves[0].What = what
		s.Moves[0].Details = ""
		switch lines := New(nil, true).block(s); {
		case want == "" && len(lines) != 2:
			t.Errorf("nothing is copied, and there is %q", lines[2:])
		case want != "" && (len(lines) != 3 || !strings.HasPrefix(lines[2], "  "+want+" ")):
			t.Errorf("%s is copied: %q", what, lines[2:])
		}
	}
}

// TestPlainAgain: each phase of a migration that begins again is printed again.
func TestPlainAgain(t *testing.T) {
	var b bytes.Buffer
	v := New(&b, false)
	began := []string{"check", "copy", "check", "prepare", "copy", "switch"}
	for i := range began {
		s := status(0, began[i], 0)
		s.Moves[0].Began = began[:i+1]
		v.Update(s)
		v.Update(s)
	}
	var said []string
	for line := range strings.Lines(b.String()) {
		if _, phase, ok := strings.Cut(line, "sanjose: "); ok {
			said = append(said, strings.TrimSpace(phase))
		}
	}
	if !slices.Equal(said, began) {
		t.Errorf("printed %q, want %q", said, began)
	}
}

// A pause leaves blank columns, a long one empties the curve.
func TestHistory(t *testing.T) {
	v := New(nil, true)
	at := func(sec int, mbps float64) {
		v.remember(time.Duration(sec)*time.Second, Flow{Name: "f", Mbps: mbps, RTT: 20 * time.Millisecond})
	}
	at(-1, 10)
	at(0, 10)
	at(1, 5)
	at(1, 5)
	at(4, 0)
	mbps, rtt := v.past["f"].curves()
	if want := strings.Repeat(" ", 24) + "██▅  ▁"; mbps != want {
		t.Errorf("throughput %q, want %q", mbps, want)
	}
	if want := strings.Repeat(" ", 24) + "███  █"; rtt != want {
		t.Errorf("rtt %q, want %q", rtt, want)
	}
	at(1000, 1)
	if mbps, _ := v.past["f"].curves(); strings.TrimSpace(mbps) != "█" {
		t.Errorf("after a long pause %q", mbps)
	}
}

// TestNoColour: who wants no colours gets the same letters, bold and dim as before.
func TestNoColour(t *testing.T) {
	show := func(pale bool) string {
		var b bytes.Buffer
		v := New(&b, true)
		if pale {
			v.NoColour()
		}
		for sec := range 3 {
			v.Update(status(float64(sec), "copy", 4))
		}
		v.Close()
		return b.String()
	}
	hue := regexp.MustCompile(`\x1b\[3[0-9]m`)
	if all, pale := show(false), show(true); !hue.MatchString(all) || hue.ReplaceAllString(all, "") != pale {
		t.Errorf("%q", pale)
	}
}
