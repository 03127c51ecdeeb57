package live

import (
	"fmt"
	"strings"
	"time"

	"godwit/migration"
)

// The block's bounds: 24 lines with everything.
const (
	maxMoves    = 4 // two lines each
	maxDetailed = 2 // so few have a third
	maxFlows    = 11
)

const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	blue   = "\x1b[34m"
	plain  = "\x1b[0m"
)

// block is the whole view, at most 24 lines.
func (v *View) block(s Status) []string {
	head := fmt.Sprintf("%s%s%s  %s", bold, s.Title, plain, clock(s.Elapsed))
	if s.Note != "" {
		head += "  " + dim + s.Note + plain
	}
	lines := []string{head}
	moves := s.Moves
	if len(moves) > maxMoves { // the newest are worth seeing
		moves = moves[len(moves)-maxMoves:]
	}
	for _, m := range moves {
		lines = append(lines, strip(m))
		if !m.Done && m.What != "" {
			lines = append(lines, progress(m))
			if m.Details != "" && len(moves) <= maxDetailed {
				lines = append(lines, dim+"  "+m.Details+plain)
			}
		}
	}
	if len(s.Flows) == 0 {
		return lines
	}
	lines = append(lines, fmt.Sprintf("%s%-12s %11s  %-30s %9s  %-30s %9s%s", dim, "flow", "Mbit/s", "last 30 s", "RTT", "last 30 s", "longest gap", plain))
	for i, f := range s.Flows {
		if i == maxFlows {
			lines = append(lines, fmt.Sprintf("%sand %d more%s", dim, len(s.Flows)-i, plain))
			break
		}
		lines = append(lines, v.flow(f))
	}
	return lines
}

// fit cuts a block to what the terminal has room for above the row in which the cursor waits.
func (v *View) fit(lines []string) []string {
	if v.rows == nil {
		return lines
	}
	rows := v.rows()
	most := max(1, rows-1)
	if rows <= 0 || len(lines) <= most {
		return lines
	}
	if most == 1 {
		return lines[:1]
	}
	return append(lines[:most-1], fmt.Sprintf("%sand %d more lines, for which the terminal has no room%s", dim, len(lines)-most+1, plain))
}

// strip shows the phases: those behind, the one under way, those ahead.
func strip(m Move) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s%s %s → %s  ", bold, m.Guest, plain, m.From, m.To)
	if m.Done {
		mark := green + "✓ "
		if m.Phase != string(migration.Completed) {
			mark = red + "✗ "
		}
		return b.String() + mark + m.Phase + plain
	}
	now := -1
	for i, name := range migration.Phases {
		if string(name) == m.Phase {
			now = i
		}
	}
	if now < 0 {
		return b.String() + dim + m.Phase + plain
	}
	for i, phase := range migration.Phases {
		name := string(phase)
		switch {
		case i < now:
			b.WriteString(green + "✓ " + name + plain + "  ")
		case i == now:
			b.WriteString(bold + yellow + "▶ " + name + plain + dim + fmt.Sprintf(" %.1fs", m.Since.Seconds()) + plain + "  ")
		default:
			b.WriteString(dim + name + plain + "  ")
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// progress is the copy's bar and what it says about the end.
func progress(m Move) string {
	if m.Total <= 0 {
		return dim + "  " + m.What + ": not yet" + plain
	}
	share := min(1, max(0, float64(m.Copied)/float64(m.Total)))
	const width = 30
	full := int(share * width)
	return fmt.Sprintf("  %s %s%s%s%s%s %3.0f %% of %.0f MiB", m.What, blue, strings.Repeat("█", full), dim, strings.Repeat("░", width-full), plain,
		share*100, float64(m.Total)/(1<<20)) + pace(m)
}

// pace is what else is known of the copy: its round, its speed, and the time left.
func pace(m Move) (line string) {
	if m.Round > 0 {
		line += fmt.Sprintf(", round %d", m.Round)
	}
	if m.Mbps > 0 {
		line += fmt.Sprintf(", %.0f Mbit/s", m.Mbps)
	}
	if m.Remaining > 0 {
		line += fmt.Sprintf(", about %s left", m.Remaining.Round(100*time.Millisecond))
	}
	return line
}

// Gaps from here on are shown in yellow and red.
const (
	noticed = 200 * time.Millisecond
	long    = time.Second
)

func (v *View) flow(f Flow) string {
	mbps, rtt := strings.Repeat(" ", remembered), ""
	if h := v.past[f.Name]; h != nil {
		mbps, rtt = h.curves()
	}
	paint := green
	worst := max(f.Longest, f.Waiting)
	switch {
	case worst >= long:
		paint = red
	case worst >= noticed:
		paint = yellow
	}
	line := fmt.Sprintf("%-12s %11s  %s%s%s %9s  %s%s%s %s%11s%s", cut(f.Name, 12), speed(f.Mbps), blue, mbps, plain, millis(f.RTT), dim, rtt, plain, paint, millis(worst), plain)
	if f.Subflows > 0 {
		line += fmt.Sprintf("  %d subflow%s", f.Subflows, map[bool]string{false: "s"}[f.Subflows == 1])
	}
	if f.Lost > 0 || f.Corrupt > 0 {
		line += fmt.Sprintf("  %s%d lost, %d corrupt%s", red, f.Lost, f.Corrupt, plain)
	}
	if f.Dead {
		line += "  " + red + "broken" + plain
	}
	return line
}

func clock(d time.Duration) string {
	if d < 0 {
		return "starting"
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func speed(mbps float64) string {
	if mbps < 10 {
		return fmt.Sprintf("%.2f", mbps)
	}
	return fmt.Sprintf("%.0f", mbps)
}

func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d <= 0:
		return "–"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.0f s", ms/1000)
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
