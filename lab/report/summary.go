package report

import (
	"fmt"
	"io"
	"strings"
)

// The summary's bounds: it never has more than 30 lines.
const (
	maxSummaryMoves  = 6
	maxSummaryFlows  = 7
	maxSummaryUnmet  = 8
	maxSummaryRemain = 2
	maxSummaryNotes  = 2 // of at most as many migrations
)

// paint gives ANSI colours, or none.
type paint bool

func (p paint) with(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) good(text string) string { return p.with("32", text) }
func (p paint) bad(text string) string  { return p.with("1;31", text) }
func (p paint) bold(text string) string { return p.with("1", text) }
func (p paint) dim(text string) string  { return p.with("2", text) }

// Summary writes the run's end for a terminal: at most 30 lines, aligned.
func Summary(w io.Writer, r *Report, color bool) {
	c := paint(color)
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", c.bold(r.Scenario), c.dim(way(r)))
	summaryMoves(&b, r, c)
	summaryFlows(&b, r, c)
	summaryTotals(&b, r, c)
	if len(r.Leftovers) > 0 {
		fmt.Fprintf(&b, "%s %s\n", c.bad("left behind:"), clip(r.Leftovers, maxSummaryRemain, ", "))
	}
	if r.OK {
		fmt.Fprintf(&b, "%s every expectation holds\n", c.good("✓"))
	} else {
		fmt.Fprintf(&b, "%s %d unmet:\n", c.bad("✗"), len(r.Unmet))
		for _, line := range r.Unmet[:min(len(r.Unmet), maxSummaryUnmet)] {
			fmt.Fprintf(&b, "  %s\n", c.bad(line))
		}
		if more := len(r.Unmet) - maxSummaryUnmet; more > 0 {
			fmt.Fprintf(&b, "  and %d more\n", more)
		}
	}
	_, _ = io.WriteString(w, b.String())
}

func summaryMoves(b *strings.Builder, r *Report, c paint) {
	if len(r.Migrations) == 0 {
		return
	}
	rows := [][]string{{"migration", "outcome", "time", "VM downtime", "network downtime", "wire", "dropped", "moved"}}
	shown := len(r.Migrations)
	if shown > maxSummaryMoves { // that there are more takes a line, too
		shown = maxSummaryMoves - 1
	}
	for i := range r.Migrations[:shown] {
		m := &r.Migrations[i]
		moved := dash
		if m.Connections != nil && m.Outcome == Completed {
			moved = fmt.Sprintf("%d/%d", m.Connections.Moved, m.Connections.Total)
		}
		rows = append(rows, []string{m.Guest + " " + m.From + " → " + m.To, m.Outcome.Word(), seconds(m.MigrationS), milliseconds(m.VMDowntimeMS),
			milliseconds(m.NetworkDowntimeMS), size(m.WireBytes), count(m.DroppedPackets), moved})
	}
	columns(b, rows, c)
	if more := len(r.Migrations) - shown; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
	if len(r.Migrations) < maxSummaryMoves { // there are lines left
		summaryFirst(b, r, "post-copy", func(m *Migration) string {
			if m.PostCopy == nil {
				return ""
			}
			return m.PostCopy.Line()
		})
		summaryFirst(b, r, "throttled", func(m *Migration) string {
			if m.Throttled == nil {
				return ""
			}
			return fmt.Sprintf("the guest stood still for %d %% of the time, from %.1f s on", m.Throttled.Percent, m.Throttled.AtS)
		})
	}
	summaryNotes(b, r)
	summaryLists(b, r)
}

// summaryFirst has what is to be said of the first migration of which there is something; "": nothing.
func summaryFirst(b *strings.Builder, r *Report, what string, of func(*Migration) string) {
	line, more := "", 0
	for i := range r.Migrations {
		switch text := of(&r.Migrations[i]); {
		case text == "":
		case line == "":
			line = what + r.whose(i) + ": " + text
		default:
			more++
		}
	}
	if more > 0 {
		line += fmt.Sprintf(" (and %d more in report.json)", more)
	}
	if line != "" {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// whose is which migration a line is of, where there are several.
func (r *Report) whose(i int) string {
	if len(r.Migrations) == 1 {
		return ""
	}
	m := &r.Migrations[i]
	return ", " + m.Guest + " " + m.From + " → " + m.To
}

// summaryLists adds up what the guests' own lists of their connections say. Of one whose list is missing nothing is
// counted.
func summaryLists(b *strings.Builder, r *Report) {
	var all Survival
	lists, missing := 0, 0
	for i := range r.Migrations {
		s := r.Migrations[i].Survival
		switch {
		case s == nil:
		case s.Unknown != "":
			missing++
			all.Unknown = s.Unknown
		default:
			lists++
			all.Total, all.Moved, all.Tunnelled = all.Total+s.Total, all.Moved+s.Moved, all.Tunnelled+s.Tunnelled
			all.Ended, all.Lost, all.Omitted = all.Ended+s.Ended, all.Lost+s.Lost, all.Omitted+s.Omitted
		}
	}
	switch {
	case lists+missing == 0:
	case missing == 0:
		fmt.Fprintf(b, "  guests' own lists: %s\n", all.Line())
	case lists == 0:
		fmt.Fprintf(b, "  guests' own lists: %s\n", all.Unknown)
	default:
		fmt.Fprintf(b, "  guests' own lists: %s; of %d of %d none: %s\n", all.Line(), missing, lists+missing, all.Unknown)
	}
}

// summaryNotes has what the agents remarked, where there are lines left.
func summaryNotes(b *strings.Builder, r *Report) {
	if len(r.Migrations) > maxSummaryNotes {
		return
	}
	var all []string
	for i := range r.Migrations {
		for _, note := range r.Migrations[i].Notes {
			all = append(all, "note"+r.whose(i)+": "+note)
		}
	}
	for i, note := range all[:min(len(all), maxSummaryNotes)] {
		if more := len(all) - maxSummaryNotes; more > 0 && i == maxSummaryNotes-1 {
			note += fmt.Sprintf(" (and %d more in report.json)", more)
		}
		fmt.Fprintf(b, "  %s\n", note)
	}
}

func summaryFlows(b *strings.Builder, r *Report, c paint) {
	if len(r.Traffic) == 0 {
		return
	}
	rows := [][]string{{"traffic", "alive", "gap (before)", "lost", "repeated", "corrupt", "Mbit/s before/during/after", "RTT ms"}}
	for i := range r.Traffic[:min(len(r.Traffic), maxSummaryFlows)] {
		t := &r.Traffic[i]
		gap := milliseconds(t.ServiceGapMS)
		if t.GapBeforeMS != nil {
			gap += " (" + milliseconds(t.GapBeforeMS) + ")"
		}
		rows = append(rows, []string{t.Name, yes(t.Survived), gap, count(t.RecordsLost), count(t.RecordsRepeated), count(t.Corrupt), t.Mbps.String(), t.RTTMS.String()})
	}
	columns(b, rows, c)
	if more := len(r.Traffic) - maxSummaryFlows; more > 0 {
		fmt.Fprintf(b, "  and %d more\n", more)
	}
}

func summaryTotals(b *strings.Builder, r *Report, c paint) {
	var parts []string
	for _, k := range cards(r) {
		switch k.Label {
		case "Service gap", "Records lost", "Packets dropped", "Connections moved":
			value := k.Value
			switch k.Class {
			case "good":
				value = c.good(value)
			case "bad":
				value = c.bad(value)
			}
			if k.unknown != "" {
				value += " (" + k.unknown + ")"
			}
			parts = append(parts, strings.ToLower(k.Label)+" "+value)
		}
	}
	fmt.Fprintf(b, "%s\n", strings.Join(parts, " · "))
}

// columns writes rows under a dim head, indented.
func columns(b *strings.Builder, rows [][]string, c paint) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], len([]rune(text)))
		}
	}
	for n, row := range rows {
		line := "  "
		for i, text := range row {
			if i < len(row)-1 {
				text += strings.Repeat(" ", widths[i]-len([]rune(text))+2)
			}
			line += text
		}
		if n == 0 {
			line = c.dim(line)
		}
		b.WriteString(line + "\n")
	}
}

// clip joins the first n of a list and says how many more there are.
func clip(list []string, n int, between string) string {
	text := strings.Join(list[:min(n, len(list))], between)
	if more := len(list) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
