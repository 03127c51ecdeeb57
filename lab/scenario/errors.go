package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing wrong in a scenario file.
type Error struct {
	File      string
	Line, Col int // from 1
	What      string
	Allowed   string // what would be right; "" where nothing short can be said
}

// Error is one line: `FILE:LINE:COL: what; allowed: …`.
func (e Error) Error() string {
	line := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.What)
	if e.Allowed != "" {
		line += "; allowed: " + e.Allowed
	}
	return line
}

// maxErrors bounds what one Parse reports.
const maxErrors = 10

// Errors is everything wrong in a file, sorted by place: the first ten, and how
// many more there are.
type Errors struct {
	List []Error
	More int
}

// Error is one line for each.
func (e *Errors) Error() string {
	lines := make([]string, 0, len(e.List)+1)
	for _, one := range e.List {
		lines = append(lines, one.Error())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives every Error to errors.As.
func (e *Errors) Unwrap() []error {
	out := make([]error, len(e.List))
	for i, one := range e.List {
		out[i] = one
	}
	return out
}

// finding is an Error; of an unknown word with those that are known, among which a near miss is looked for once it is told.
type finding struct {
	Error
	word  string
	known []string
}

// gather sorts and bounds what was found; nil when nothing was.
func gather(found []finding) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	found = slices.CompactFunc(found, func(a, b finding) bool { return a.Error == b.Error })
	out := &Errors{More: max(0, len(found)-maxErrors)}
	for _, f := range found[:min(len(found), maxErrors)] {
		f.What += guess(f.word, f.known)
		out.List = append(out.List, f.Error)
	}
	return out
}

// guess is the near miss to add to a message about an unknown word.
func guess(word string, known []string) string {
	if best := nearest(word, known); best != "" {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return ""
}

// nearest is the known word that an unknown one may stand for: at most two
// slips away, fewer for short words, none for a single letter; "": none is.
func nearest(word string, known []string) (best string) {
	bestAt := min(3, (len(word)+2)/2)
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < bestAt {
			best, bestAt = k, d
		}
	}
	return best
}

// distance counts insertions, deletions, substitutions and swaps of neighbours
// that make a into b. Words longer than 64 bytes are far from everything.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return len(a) + len(b)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
