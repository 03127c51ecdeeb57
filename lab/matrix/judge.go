package matrix

import (
	"fmt"
	"slices"
	"strings"

	"godwit/migration"
)

// Seen is what was measured in one cell. Times are seconds since the fault came.
type Seen struct {
	From string `json:"from"` // host
	To   string `json:"to"`
	// Hit is the phase that the migration was in when the fault had come, by the
	// source's events; "" when it had ended by then.
	Hit migration.Phase `json:"hit"`
	// Note says what the fault did where that is not plain, such as "there was no QEMU yet".
	Note    string            `json:"note,omitempty"`
	Outcome migration.Outcome `json:"outcome"` // "": nobody knows of the migration any more
	Problem string            `json:"problem,omitempty"`
	Notes   []string          `json:"notes,omitempty"` // of the source's report
	// Word is what a person had to say on the source, once the destination itself said that
	// its QEMU is gone after it may have run the guest, and WordS when. "": nothing.
	Word  string  `json:"word,omitempty"`
	WordS float64 `json:"word_s,omitempty"`

	// By the QEMU processes themselves, at the end.
	Runs []string `json:"runs"` // hosts whose QEMU runs the guest
	// Doubled counts looks at which two QEMUs ran the guest at the same time, of Looks at which all that lived answered.
	Doubled int `json:"doubled"`
	Looks   int `json:"looks"`
	// Ended: the fault ended the only QEMU that ran the guest, or could have.
	Ended bool `json:"ended,omitempty"`
	// Before: the guest's QEMU at the destination was gone before the migration settled.
	Before bool `json:"ended_before_settle,omitempty"`

	Silent  string `json:"silent,omitempty"`  // what came of asking the guest, where it runs and does not answer
	Damaged string `json:"damaged,omitempty"` // pages of its memory and disk that are not what it wrote
	// Crashed are agents that ended although nothing had been done to them.
	Crashed []string `json:"crashed,omitempty"`

	Connections int      `json:"connections"`
	Lost        []string `json:"lost_connections,omitempty"`
	GapS        float64  `json:"gap_s"` // longest wait of a connection

	Doubt    []Span                      `json:"in_doubt,omitempty"`
	ThroughS float64                     `json:"through_s"`        // when something could get through between the agents again; 0: all the time
	TookS    map[migration.Phase]float64 `json:"took_s,omitempty"` // each phase, as far as the report tells
	OutcomeS float64                     `json:"outcome_s"`        // when the outcome was known
	SettledS float64                     `json:"settled_s"`        // when no migration was under way any more at either host
	Left     []string                    `json:"leftovers,omitempty"`

	Trouble string `json:"trouble,omitempty"` // why the cell could not be measured
}

// Span is a stretch of time, in seconds since the fault.
type Span struct {
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
}

// NotEnded is the outcome of a migration that came to none while it was watched.
const NotEnded migration.Outcome = "not_ended"

// DoubtAfter is how long a migration may stay in doubt after something got through,
// seconds.
const DoubtAfter = 2

// Judge says what is wrong with what was seen; nothing if all is as promised.
func Judge(c Cell, s Seen) []string {
	if s.Trouble != "" {
		return []string{"not measured: " + s.Trouble}
	}
	var bad []string
	complain := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	if s.Looks == 0 {
		complain("not measured: whether two QEMUs ran the guest, as they never answered")
	}
	if s.Doubled > 0 {
		complain("doubled: two QEMUs ran the guest at %d of %d looks", s.Doubled, s.Looks)
	}
	switch {
	case len(s.Runs) > 1:
		complain("doubled: the guest runs on %s", strings.Join(s.Runs, " and "))
	case len(s.Runs) == 0 && !s.Ended:
		complain("lost: the guest runs nowhere")
	}
	for _, a := range s.Crashed {
		complain("agent ended by itself: %s", a)
	}
	if s.Silent != "" {
		complain("the guest does not answer: %s", s.Silent)
	}
	if s.Damaged != "" {
		complain("the guest is damaged: %s", s.Damaged)
	}
	bad = append(bad, judgeOutcome(c, s)...)
	if !s.saysWhy() {
		complain("said to be %s, and not why in one line: %q", s.Outcome, s.Problem)
	}
	bad = append(bad, judgeSaid(c, s)...)
	if s.Word != "" && !c.Kind().Ends {
		complain("a person had to decide: %s", s.Word)
	}
	if len(s.Lost) > 0 && !s.excused() {
		complain("%d of %d connections lost: %s", len(s.Lost), s.Connections, strings.Join(s.Lost, "; "))
	}
	bad = append(bad, judgeDoubt(c, s)...)
	for _, l := range s.Left {
		complain("left over: %s", l)
	}
	return bad
}

// excused: connections need not live on of a guest that the fault ended, nor of one that
// went back to the moment of its switch.
func (s Seen) excused() bool { return s.Ended && len(s.Runs) == 0 || s.Word != "" }

// saysWhy: of a migration that came to nothing one line says why.
func (s Seen) saysWhy() bool {
	switch s.Outcome {
	case migration.Aborted, migration.Refused, migration.Failed:
		return s.Problem != "" && !strings.ContainsAny(s.Problem, "\n\r") && !strings.Contains(s.Problem, "%!")
	}
	return true
}

// judgeOutcome compares what was said with where the guest is.
func judgeOutcome(c Cell, s Seen) []string {
	at := ""
	if len(s.Runs) == 1 {
		at = s.Runs[0]
	}
	switch s.Outcome {
	case migration.Completed:
		if at != "" && at != s.To {
			return []string{"said to be completed, and the guest runs on " + at}
		}
	case migration.Aborted, migration.Refused:
		if at != "" && at != s.From {
			return []string{"said to be " + string(s.Outcome) + ", and the guest runs on " + at}
		}
	case migration.Failed:
		if at != "" || !s.Ended {
			return []string{"said to have failed: " + s.Problem}
		}
	case "":
		// An agent that was killed before its first record never promised anything.
		forgets := slices.Contains([]string{KillSourceAgent, KillBothAgents}, c.Fault) && c.Phase == migration.Check
		if !forgets || at != s.From {
			return []string{"no agent knows of the migration any more"}
		}
	default:
		return []string{strings.TrimSpace("no outcome: " + string(s.Outcome) + " " + s.Problem)}
	}
	return nil
}

// judgeSaid demands that a guest's own end is said, and how it ended, where its migration came to nothing by that, or
// its agents saw it, as they must until the migration settles: then nobody looks any more.
func judgeSaid(c Cell, s Seen) []string {
	said, all := c.Kind().Said, strings.Join(append([]string{s.Problem}, s.Notes...), "; ")
	if said == "" || !s.Ended || len(s.Runs) > 0 || strings.Contains(all, said) {
		return nil
	}
	there := strings.Contains(all, "ended on "+s.To)
	if s.Outcome == migration.Completed && !s.Before && !there {
		return nil
	}
	if c.Fault == GuestPanic && there && strings.Contains(all, "rebooted") {
		return nil // it panicked as it left: what it said of that is on its old host's console
	}
	return []string{fmt.Sprintf("not said that the guest %s: %q", said, all)}
}

// judgeDoubt allows doubt from the fault on, until 2 s after something got through.
func judgeDoubt(c Cell, s Seen) []string {
	limit := float64(DoubtAfter)
	if c.Kind().Silences {
		limit += s.ThroughS
	}
	if s.Word != "" { // nothing else could end it
		limit = max(limit, s.WordS+DoubtAfter)
	}
	for _, d := range s.Doubt {
		if d.To > limit {
			return []string{fmt.Sprintf("in doubt from %.1f s to %.1f s, and something got through at %.1f s", d.From, d.To, limit-DoubtAfter)}
		}
	}
	return nil
}
