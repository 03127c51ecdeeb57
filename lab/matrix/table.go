package matrix

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"godwit/migration"
)

// Result is one cell, measured and judged.
type Result struct {
	Cell
	Seen
	Bad []string `json:"bad"` // what is wrong; empty: nothing
	At  string   `json:"at"`  // RFC 3339, when it was measured
}

// OK says that the cell is as promised.
func (r Result) OK() bool { return len(r.Bad) == 0 }

// Sums are the results together.
type Sums struct {
	Cells       int `json:"cells"`
	Bad         int `json:"bad"`
	Lost        int `json:"guests_lost"` // without a fault that ended the only QEMU
	Doubled     int `json:"guests_doubled"`
	Connections int `json:"connections"`
	Dropped     int `json:"connections_lost"` // of guests that were not ended
	Left        int `json:"leftovers"`
	Unmeasured  int `json:"not_measured"`
}

// Sum adds results up.
func Sum(results []Result) Sums {
	var s Sums
	for _, r := range results {
		s.Cells++
		if !r.OK() {
			s.Bad++
		}
		if r.Trouble != "" {
			s.Unmeasured++
			continue
		}
		if len(r.Runs) == 0 && !r.Ended {
			s.Lost++
		}
		if r.Doubled > 0 || len(r.Runs) > 1 {
			s.Doubled++
		}
		s.Connections += r.Connections
		if !r.excused() {
			s.Dropped += len(r.Lost)
		}
		s.Left += len(r.Left)
	}
	return s
}

// word is a cell in the table: how it ended, and how long it took to be settled.
func (r Result) word() string {
	word := map[migration.Outcome]string{migration.Completed: "moved", migration.Aborted: "back", migration.Refused: "refused",
		migration.Failed: "ended", "": "forgotten"}[r.Outcome]
	if word == "" {
		word = string(r.Outcome)
	}
	if r.Ended && len(r.Runs) == 0 {
		word = "ended"
	}
	if r.Word != "" {
		word = "taken " + word
	}
	if r.Trouble != "" {
		word = "?"
	} else {
		word = fmt.Sprintf("%s %.1f s", word, r.SettledS)
		if r.Hit != r.Phase {
			word += " *"
		}
	}
	if !r.OK() {
		return "**BAD** " + word
	}
	return word
}

// wordOf is a cell's in the table: of several tries that which is worst, the one that took longest among alike.
func wordOf(results []Result, c Cell) string {
	tries := slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Cell != c })
	if len(tries) == 0 {
		return ""
	}
	word := slices.MaxFunc(tries, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.badness(), b.badness()), cmp.Compare(a.SettledS, b.SettledS))
	}).word()
	if len(tries) > 1 {
		word += fmt.Sprintf(" (%d)", len(tries))
	}
	return word
}

// badness is higher where more is wrong: what was seen to be is more than what could not be measured.
func (r Result) badness() int {
	switch {
	case r.OK():
		return 0
	case r.Trouble != "":
		return 1
	}
	return 2
}

// Table writes faults × phases as Markdown, then the sums and what is wrong.
func Table(w io.Writer, results []Result) {
	columns := migration.Phases
	fmt.Fprint(w, "| fault |")
	for _, p := range columns {
		fmt.Fprintf(w, " %s |", p)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, f := range Faults {
		if !slices.ContainsFunc(results, func(r Result) bool { return r.Fault == f.Name }) {
			continue
		}
		fmt.Fprintf(w, "| %s |", f.Name)
		for _, p := range columns {
			fmt.Fprintf(w, " %s |", wordOf(results, Cell{f.Name, p}))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, `
moved: the guest runs at the destination; back: at the source, the migration was undone;
refused: it never began; ended: the fault ended the guest's only QEMU; taken back: by a
person's word, as the QEMU that had run the guest was gone; forgotten: the agent was killed
before its first record. Seconds from the fault until no migration was under way.
*: the phase was over when the fault had come. (n): the worst of n tries.
`)
	s := Sum(results)
	fmt.Fprintf(w, "\n%d cells, %d bad (%d not measured): %d guests lost, %d doubled, %d of %d connections lost, %d leftovers.\n",
		s.Cells, s.Bad, s.Unmeasured, s.Lost, s.Doubled, s.Dropped, s.Connections, s.Left)
	for _, r := range results {
		for _, b := range r.Bad {
			fmt.Fprintf(w, "- %s: %s\n", r.Cell, b)
		}
	}
}
